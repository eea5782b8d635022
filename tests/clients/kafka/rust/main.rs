//! A player by rdkafka: it answers each line of JSON that it is asked with one.

use std::collections::HashMap;
use std::error::Error;
use std::io::{stdin, BufRead};
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_executor::block_on;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::{ClientContext, OAuthToken};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::{Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer};
use rdkafka::{Offset, TopicPartitionList};
use serde_json::{json, Value};

const READ_AT_MOST: Duration = Duration::from_secs(30);
const POLL_AT_MOST: Duration = Duration::from_millis(200);
const TOKEN_LASTS: Duration = Duration::from_secs(3_600);

/// Says who logs in by a token, and keeps the first error of what was sent.
#[derive(Default)]
struct Context {
    token: Option<String>,
    failed: Mutex<Option<KafkaError>>,
}

impl ClientContext for Context {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn error(&self, error: KafkaError, reason: &str) {
        eprintln!("{error}: {reason}");
    }

    fn generate_oauth_token(&self, _: Option<&str>) -> Result<OAuthToken, Box<dyn Error>> {
        let ends = SystemTime::now().duration_since(UNIX_EPOCH)? + TOKEN_LASTS;
        Ok(OAuthToken {
            token: self.token.clone().ok_or("there is no token")?,
            principal_name: String::new(),
            lifetime_ms: ends.as_millis() as i64,
        })
    }
}

impl ConsumerContext for Context {}

impl ProducerContext for Context {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, _: ()) {
        if let Err((error, _)) = result {
            self.failed.lock().unwrap().get_or_insert(error.clone());
        }
    }
}

type Reader = BaseConsumer<Context>;

struct Player {
    bootstrap: String,
    login: Value,
    members: HashMap<String, Reader>,
}

fn text(asked: &Value) -> &str {
    asked.as_str().unwrap()
}

impl Player {
    fn settings(&self, more: &[(&str, &str)]) -> ClientConfig {
        let mut made = ClientConfig::new();
        made.set("bootstrap.servers", &self.bootstrap);
        for (name, value) in more {
            made.set(*name, *value);
        }
        if !self.login.is_null() {
            made.set("security.protocol", "SASL_SSL").set("ssl.ca.location", text(&self.login["ca"]));
            if self.login["token"].is_string() {
                made.set("sasl.mechanism", "OAUTHBEARER");
            } else {
                made.set("sasl.mechanism", "PLAIN");
                made.set("sasl.username", text(&self.login["user"]));
                made.set("sasl.password", text(&self.login["password"]));
            }
        }
        made
    }

    fn context(&self) -> Context {
        Context { token: self.login["token"].as_str().map(String::from), ..Context::default() }
    }

    fn consumer(&self, group: &str) -> KafkaResult<Reader> {
        let own = [
            ("group.id", group),
            ("auto.offset.reset", "earliest"),
            ("enable.auto.commit", "false"),
            ("heartbeat.interval.ms", "200"),
            ("session.timeout.ms", "9000"),
        ];
        self.settings(&own).create_with_context(self.context())
    }

    fn does(&mut self, asked: &Value) -> KafkaResult<Value> {
        let topic = asked["topic"].as_str().unwrap_or("");
        let member = asked["member"].as_str().unwrap_or("");
        match text(&asked["do"]) {
            "create" => self.create(topic, asked)?,
            "produce" => self.produce(topic, asked)?,
            "read" => return self.read(topic, asked),
            "join" => {
                let joined = self.consumer(text(&asked["group"]))?;
                joined.subscribe(&[topic])?;
                self.members.insert(member.into(), joined);
            }
            "poll" => {
                let found = polled(&self.members[member])?;
                let held: Vec<i32> =
                    self.members[member].assignment()?.elements().iter().map(|at| at.partition()).collect();
                return Ok(json!({"records": found, "held": held}));
            }
            "commit" => match self.members[member].commit_consumer_state(CommitMode::Sync) {
                // It has read nothing since.
                Err(KafkaError::ConsumerCommit(RDKafkaErrorCode::NoOffset)) => {}
                other => other?,
            },
            "leave" => drop(self.members.remove(member)),
            "reset" => self.reset(topic, asked)?,
            other => panic!("nobody knows how to {other}"),
        }
        Ok(json!({}))
    }

    fn create(&self, topic: &str, asked: &Value) -> KafkaResult<()> {
        let admin: AdminClient<Context> = self.settings(&[]).create_with_context(self.context())?;
        let partitions = asked["partitions"].as_i64().unwrap() as i32;
        let mut wanted = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
        for (name, value) in asked["config"].as_object().unwrap() {
            wanted = wanted.set(name, text(value));
        }
        for made in block_on(admin.create_topics([&wanted], &AdminOptions::new()))? {
            made.map_err(|(_, code)| KafkaError::AdminOp(code))?;
        }
        Ok(())
    }

    fn produce(&self, topic: &str, asked: &Value) -> KafkaResult<()> {
        let own = [
            ("enable.idempotence", "true"),
            ("compression.codec", text(&asked["codec"])),
            ("topic.metadata.propagation.max.ms", "1000"),
        ];
        let producer: ThreadedProducer<Context> = self.settings(&own).create_with_context(self.context())?;
        for each in asked["records"].as_array().unwrap() {
            let mut headers = OwnedHeaders::new();
            for pair in each["headers"].as_array().unwrap() {
                headers = headers.insert(Header { key: text(&pair[0]), value: Some(text(&pair[1])) });
            }
            let partition = each["partition"].as_i64().unwrap() as i32;
            let mut record = BaseRecord::<str, str>::to(topic).partition(partition).headers(headers);
            if let Some(key) = each["key"].as_str() {
                record = record.key(key);
            }
            if let Some(value) = each["value"].as_str() {
                record = record.payload(value);
            }
            producer.send(record).map_err(|(error, _)| error)?;
        }
        producer.flush(READ_AT_MOST)?;
        let failed = producer.context().failed.lock().unwrap().take();
        failed.map_or(Ok(()), Err)
    }

    fn read(&self, topic: &str, asked: &Value) -> KafkaResult<Value> {
        // It joins no group, yet looks for the coordinator of one, for which it needs a right to it.
        let consumer = self.consumer("read-alone")?;
        let mut parts = TopicPartitionList::new();
        for number in 0..asked["partitions"].as_i64().unwrap() {
            parts.add_partition_offset(topic, number as i32, Offset::Beginning)?;
        }
        consumer.assign(&parts)?;
        let mut found = Vec::new();
        let ends = Instant::now() + READ_AT_MOST;
        while (found.len() as u64) < asked["count"].as_u64().unwrap() && Instant::now() < ends {
            found.extend(polled(&consumer)?);
        }
        Ok(json!({"records": found}))
    }

    fn reset(&self, topic: &str, asked: &Value) -> KafkaResult<()> {
        let mut offsets = TopicPartitionList::new();
        for (number, offset) in asked["offsets"].as_object().unwrap() {
            offsets.add_partition_offset(topic, number.parse().unwrap(), Offset::Offset(offset.as_i64().unwrap()))?;
        }
        self.consumer(text(&asked["group"]))?.commit(&offsets, CommitMode::Sync)
    }
}

fn polled(consumer: &Reader) -> KafkaResult<Vec<Value>> {
    let mut found = Vec::new();
    let mut wait = POLL_AT_MOST;
    while let Some(came) = consumer.poll(wait) {
        let message = came?;
        let as_text = |bytes: Option<&[u8]>| bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        let headers: Vec<_> = message
            .headers()
            .map(|headers| headers.iter().map(|each| json!([each.key, as_text(each.value)])).collect())
            .unwrap_or_default();
        found.push(json!({
            "partition": message.partition(), "offset": message.offset(),
            "key": as_text(message.key()), "value": as_text(message.payload()), "headers": headers,
        }));
        wait = Duration::ZERO;
    }
    Ok(found)
}

fn name_of(error: &KafkaError) -> String {
    let code = match error {
        KafkaError::AdminOp(code) => Some(*code),
        other => other.rdkafka_error_code(),
    };
    match code {
        Some(RDKafkaErrorCode::MessageSizeTooLarge) => "MESSAGE_TOO_LARGE".into(),
        Some(RDKafkaErrorCode::TopicAlreadyExists) => "TOPIC_ALREADY_EXISTS".into(),
        Some(RDKafkaErrorCode::UnknownMemberId) => "UNKNOWN_MEMBER_ID".into(),
        Some(RDKafkaErrorCode::UnknownTopic | RDKafkaErrorCode::UnknownTopicOrPartition) => {
            "UNKNOWN_TOPIC_OR_PARTITION".into()
        }
        _ => error.to_string(),
    }
}

fn main() {
    let given: Vec<String> = std::env::args().collect();
    let login = given.get(2).map_or(Value::Null, |login| serde_json::from_str(login).unwrap());
    let mut player = Player { bootstrap: given[1].clone(), login, members: HashMap::new() };
    for line in stdin().lock().lines() {
        let asked: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let answer = player.does(&asked).unwrap_or_else(|error| json!({"error": name_of(&error)}));
        println!("{answer}");
    }
}
