import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** A player by Kafka's client for Java: it answers each line of JSON that it is asked with one. */
public class Player {
    static final ObjectMapper JSON = new ObjectMapper();
    static final Duration READ_AT_MOST = Duration.ofSeconds(30);
    static final Duration POLL_AT_MOST = Duration.ofMillis(200);
    static final Map<String, KafkaConsumer<String, String>> MEMBERS = new HashMap<>();
    static String bootstrap;
    static String groupProtocol;
    static JsonNode login;

    public static void main(String[] args) throws Exception {
        groupProtocol = args[0];
        bootstrap = args[1];
        login = args.length > 2 ? JSON.readTree(args[2]) : null;
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                does(JSON.readTree(line), answer);
            } catch (Exception error) {
                answer.put("error", nameOf(error));
            }
            System.out.write((JSON.writeValueAsString(answer) + "\n").getBytes(StandardCharsets.UTF_8));
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    static String nameOf(Exception error) {
        Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
        if (cause instanceof TimeoutException) {
            return cause.getMessage().replaceFirst("^Topic \\S+ ", "");
        }
        Errors told = Errors.forException(cause);
        return told == Errors.UNKNOWN_SERVER_ERROR ? cause.toString() : told.name();
    }

    static void does(JsonNode asked, ObjectNode answer) throws Exception {
        String topic = asked.path("topic").asText();
        KafkaConsumer<String, String> member = MEMBERS.get(asked.path("member").asText());
        switch (asked.get("do").asText()) {
            case "create" -> create(topic, asked);
            case "produce" -> produce(topic, asked);
            case "read" -> read(topic, asked, answer.putArray("records"));
            case "join" -> {
                Map<String, Object> settings = consumerSettings();
                settings.put("group.id", asked.get("group").asText());
                settings.put("group.protocol", groupProtocol);
                if (groupProtocol.equals("classic")) {
                    settings.put("heartbeat.interval.ms", 200);
                    settings.put("session.timeout.ms", 9_000);
                }
                KafkaConsumer<String, String> joined = new KafkaConsumer<>(settings);
                joined.subscribe(List.of(topic));
                MEMBERS.put(asked.get("member").asText(), joined);
            }
            case "poll" -> {
                poll(member, answer.putArray("records"));
                ArrayNode held = answer.putArray("held");
                member.assignment().forEach(at -> held.add(at.partition()));
            }
            case "commit" -> member.commitSync();
            case "leave" -> member.close();
            case "reset" -> reset(asked.get("group").asText(), topic, asked.get("offsets"));
            default -> throw new IllegalArgumentException(asked.toString());
        }
    }

    static void create(String topic, JsonNode asked) throws Exception {
        Map<String, String> config = new HashMap<>();
        asked.get("config").fields().forEachRemaining(each -> config.put(each.getKey(), each.getValue().asText()));
        try (Admin admin = Admin.create(settings())) {
            NewTopic wanted = new NewTopic(topic, asked.get("partitions").asInt(), (short) 1).configs(config);
            admin.createTopics(List.of(wanted)).all().get();
        }
    }

    static void produce(String topic, JsonNode asked) throws Exception {
        Map<String, Object> settings = settings();
        settings.put("compression.type", asked.get("codec").asText());
        settings.put("linger.ms", 5);
        settings.put("max.block.ms", 15_000);
        StringSerializer text = new StringSerializer();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, text, text)) {
            List<Future<?>> sent = new ArrayList<>();
            for (JsonNode each : asked.get("records")) {
                String key = each.get("key").textValue();
                String value = each.get("value").textValue();
                ProducerRecord<String, String> record =
                        new ProducerRecord<>(topic, each.get("partition").asInt(), key, value);
                for (JsonNode pair : each.get("headers")) {
                    record.headers().add(pair.get(0).asText(), pair.get(1).asText().getBytes(StandardCharsets.UTF_8));
                }
                sent.add(producer.send(record));
            }
            for (Future<?> each : sent) {
                each.get();
            }
        }
    }

    static void reset(String group, String topic, JsonNode asked) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        asked.fields().forEachRemaining(each -> offsets.put(
                new TopicPartition(topic, Integer.parseInt(each.getKey())),
                new OffsetAndMetadata(each.getValue().asLong())));
        try (Admin admin = Admin.create(settings())) {
            admin.alterConsumerGroupOffsets(group, offsets).all().get();
        }
    }

    /** What any client needs to know; a token comes from a file, as there is no provider of tokens to ask. */
    static Map<String, Object> settings() throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        if (login == null) {
            return settings;
        }
        String modules = "org.apache.kafka.common.security.";
        settings.put("security.protocol", "SASL_SSL");
        settings.put("ssl.truststore.type", "PEM");
        settings.put("ssl.truststore.location", login.get("ca").asText());
        if (!login.has("token")) {
            settings.put("sasl.mechanism", "PLAIN");
            settings.put("sasl.jaas.config", "%splain.PlainLoginModule required username=%s password=%s;"
                    .formatted(modules, login.get("user"), login.get("password")));
            return settings;
        }
        Path token = Files.createTempFile("token", "");
        token.toFile().deleteOnExit();
        Files.writeString(token, login.get("token").asText());
        System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", token.toUri().toString());
        settings.put("sasl.mechanism", "OAUTHBEARER");
        settings.put("sasl.oauthbearer.token.endpoint.url", token.toUri().toString());
        settings.put("sasl.login.callback.handler.class", modules + "oauthbearer.OAuthBearerLoginCallbackHandler");
        settings.put("sasl.jaas.config", modules + "oauthbearer.OAuthBearerLoginModule required;");
        return settings;
    }

    static Map<String, Object> consumerSettings() throws Exception {
        Map<String, Object> settings = settings();
        settings.put("key.deserializer", StringDeserializer.class);
        settings.put("value.deserializer", StringDeserializer.class);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", false);
        return settings;
    }

    static void read(String topic, JsonNode asked, ArrayNode records) throws Exception {
        List<TopicPartition> parts = new ArrayList<>();
        for (int number = 0; number < asked.get("partitions").asInt(); number++) {
            parts.add(new TopicPartition(topic, number));
        }
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(consumerSettings())) {
            consumer.assign(parts);
            long ends = System.nanoTime() + READ_AT_MOST.toNanos();
            while (records.size() < asked.get("count").asInt() && System.nanoTime() < ends) {
                poll(consumer, records);
            }
        }
    }

    static void poll(KafkaConsumer<String, String> consumer, ArrayNode records) {
        for (ConsumerRecord<String, String> record : consumer.poll(POLL_AT_MOST)) {
            ObjectNode told = records.addObject();
            told.put("partition", record.partition()).put("offset", record.offset());
            told.put("key", record.key()).put("value", record.value());
            ArrayNode headers = told.putArray("headers");
            for (Header header : record.headers()) {
                headers.addArray().add(header.key()).add(new String(header.value(), StandardCharsets.UTF_8));
            }
        }
    }
}
