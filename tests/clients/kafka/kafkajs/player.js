// A player by kafkajs: it answers each line of JSON that it is asked with one.
"use strict";

const { randomUUID } = require("node:crypto");
const { readFileSync } = require("node:fs");
const readline = require("node:readline");
const { CompressionCodecs, CompressionTypes, Kafka, Partitioners, logLevel } = require("kafkajs");
CompressionCodecs[CompressionTypes.Snappy] = require("kafkajs-snappy");

const READ_MS_MAX = 30_000;
const POLL_MS = 200;
const CODECS = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy };
const { ca, user, password, token } = JSON.parse(process.argv[3] ?? "{}");
const kafka = new Kafka({
  clientId: "player",
  ...(ca && { ssl: { ca: [readFileSync(ca, "utf-8")] } }),
  ...(user && { sasl: { mechanism: "plain", username: user, password } }),
  ...(token && { sasl: { mechanism: "oauthbearer", oauthBearerProvider: async () => ({ value: token }) } }),
  brokers: [process.argv[2]],
  logLevel: logLevel.NOTHING,
  retry: { retries: 3, initialRetryTime: 50 },
});
const members = new Map();

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const text = (bytes) => (bytes === null ? null : bytes.toString());

function told({ partition, message }) {
  const headers = Object.entries(message.headers).map(([name, value]) => [name, text(value)]);
  const { key, value } = message;
  return { partition, offset: Number(message.offset), key: text(key), value: text(value), headers };
}

class Member {
  constructor(group, topic) {
    this.topic = topic;
    this.records = [];
    this.read = new Map();
    this.held = [];
    this.consumer = kafka.consumer({ groupId: group, heartbeatInterval: 200, sessionTimeout: 9_000, maxWaitTimeInMs: 200 });
    this.consumer.on(this.consumer.events.GROUP_JOIN, ({ payload }) => {
      this.held = payload.memberAssignment[topic] ?? [];
    });
  }

  async start() {
    await this.consumer.connect();
    await this.consumer.subscribe({ topics: [this.topic], fromBeginning: true });
    await this.consumer.run({ autoCommit: false, eachMessage: async (each) => void this.records.push(told(each)) });
  }

  taken() {
    const records = this.records.splice(0);
    for (const { partition, offset } of records) this.read.set(partition, offset + 1);
    return records;
  }

  async commit() {
    const offsets = [...this.read].filter(([partition]) => this.held.includes(partition));
    this.read.clear();
    const { topic } = this;
    await this.consumer.commitOffsets(offsets.map(([partition, offset]) => ({ topic, partition, offset: `${offset}` })));
  }
}

const does = {
  async create({ topic, partitions, config }) {
    const admin = kafka.admin();
    await admin.connect();
    try {
      const configEntries = Object.entries(config).map(([name, value]) => ({ name, value }));
      const wanted = { topic, numPartitions: partitions, replicationFactor: 1, configEntries };
      // Where all there is to tell is that it is there, it gives false.
      if (!(await admin.createTopics({ topics: [wanted] }))) return { error: "TOPIC_ALREADY_EXISTS" };
    } finally {
      await admin.disconnect();
    }
  },

  async produce({ topic, codec, records }) {
    const settings = { idempotent: true, maxInFlightRequests: 1, createPartitioner: Partitioners.DefaultPartitioner };
    const producer = kafka.producer({ ...settings, retry: { retries: 3, initialRetryTime: 50 } });
    await producer.connect();
    try {
      const messages = records.map((record) => ({ ...record, headers: Object.fromEntries(record.headers) }));
      await producer.send({ topic, messages, acks: -1, compression: CODECS[codec] });
    } finally {
      await producer.disconnect();
    }
  },

  // It reads in a group alone.
  async read({ topic, count }) {
    const member = new Member(`read-${randomUUID()}`, topic);
    await member.start();
    for (let waited = 0; member.records.length < count && waited < READ_MS_MAX; waited += 20) await pause(20);
    await member.consumer.disconnect();
    return { records: member.records };
  },

  async join({ member, group, topic }) {
    members.set(member, new Member(group, topic));
    await members.get(member).start();
  },

  async poll({ member }) {
    await pause(POLL_MS);
    const { held } = members.get(member);
    return { records: members.get(member).taken(), held };
  },

  commit: ({ member }) => members.get(member).commit(),
  leave: ({ member }) => members.get(member).consumer.disconnect(),

  async reset({ group, topic, offsets }) {
    const admin = kafka.admin();
    await admin.connect();
    try {
      const partitions = Object.entries(offsets).map(([partition, offset]) => ({ partition: Number(partition), offset: `${offset}` }));
      await admin.setOffsets({ groupId: group, topic, partitions });
    } finally {
      await admin.disconnect();
    }
  },
};

function nameOf(error) {
  for (let at = error; at; at = at.cause) if (at.type) return at.type;
  return String(error);
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const asked = JSON.parse(line);
    const answer = await Promise.resolve(does[asked.do](asked)).catch((error) => ({ error: nameOf(error) }));
    process.stdout.write(`${JSON.stringify({ records: [], held: [], ...answer })}\n`);
  }
}

void main();
