import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.CloseableIterator;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.OffsetResetStrategy;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;

/** A player by Flink's source and sink of Kafka, for any server: each line that it is asked for names one. */
public class FlinkPlayer {
    static final ObjectMapper JSON = new ObjectMapper();
    static final long CHECKPOINT_MS = 200;

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                does(JSON.readTree(line), answer);
            } catch (Exception error) {
                Throwable root = error;
                while (root.getCause() != null) {
                    root = root.getCause();
                }
                answer.put("error", root.toString());
            }
            System.out.write((JSON.writeValueAsString(answer) + "\n").getBytes(StandardCharsets.UTF_8));
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    static void does(JsonNode asked, ObjectNode answer) throws Exception {
        switch (asked.get("do").asText()) {
            case "produce" -> produce(asked);
            case "read" -> read(asked, answer.putArray("records"));
            default -> throw new IllegalArgumentException(asked.toString());
        }
    }

    static StreamExecutionEnvironment environment() {
        StreamExecutionEnvironment made = StreamExecutionEnvironment.createLocalEnvironment(1);
        made.enableCheckpointing(CHECKPOINT_MS);
        return made;
    }

    static void produce(JsonNode asked) throws Exception {
        List<String> rows = new ArrayList<>();
        asked.get("records").forEach(each -> rows.add(each.toString()));
        KafkaSink<String> sink = KafkaSink.<String>builder()
                .setBootstrapServers(asked.get("bootstrap").asText())
                .setRecordSerializer(new Sent(asked.get("topic").asText()))
                .setDeliveryGuarantee(DeliveryGuarantee.AT_LEAST_ONCE)
                .build();
        StreamExecutionEnvironment made = environment();
        made.fromData(Types.STRING, rows.toArray(new String[0])).sinkTo(sink);
        made.execute();
    }

    /** Reads from where the group is to where the topic ends now. */
    static void read(JsonNode asked, ArrayNode records) throws Exception {
        KafkaSource<String> source = KafkaSource.<String>builder()
                .setBootstrapServers(asked.get("bootstrap").asText())
                .setTopics(asked.get("topic").asText())
                .setGroupId(asked.get("group").asText())
                .setStartingOffsets(OffsetsInitializer.committedOffsets(OffsetResetStrategy.EARLIEST))
                .setBounded(OffsetsInitializer.latest())
                .setDeserializer(new Read())
                .build();
        StreamExecutionEnvironment made = environment();
        try (CloseableIterator<String> found =
                made.fromSource(source, WatermarkStrategy.noWatermarks(), "kafka").executeAndCollect()) {
            while (found.hasNext()) {
                records.add(JSON.readTree(found.next()));
            }
        }
    }

    static byte[] bytes(JsonNode text) {
        return text.isNull() ? null : text.asText().getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] bytes) {
        return bytes == null ? null : new String(bytes, StandardCharsets.UTF_8);
    }

    /** Makes records of lines of JSON. */
    record Sent(String topic) implements KafkaRecordSerializationSchema<String> {
        @Override
        public ProducerRecord<byte[], byte[]> serialize(String line, KafkaSinkContext context, Long timestamp) {
            try {
                JsonNode row = JSON.readTree(line);
                ProducerRecord<byte[], byte[]> made = new ProducerRecord<>(
                        topic, row.get("partition").asInt(), bytes(row.get("key")), bytes(row.get("value")));
                for (JsonNode pair : row.get("headers")) {
                    made.headers().add(pair.get(0).asText(), bytes(pair.get(1)));
                }
                return made;
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
    }

    /** Makes lines of JSON of records. */
    record Read() implements KafkaRecordDeserializationSchema<String> {
        @Override
        public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<String> out) {
            ObjectNode told = JSON.createObjectNode();
            told.put("partition", record.partition()).put("offset", record.offset());
            told.put("key", text(record.key())).put("value", text(record.value()));
            ArrayNode headers = told.putArray("headers");
            for (Header header : record.headers()) {
                headers.addArray().add(header.key()).add(text(header.value()));
            }
            out.collect(told.toString());
        }

        @Override
        public TypeInformation<String> getProducedType() {
            return Types.STRING;
        }
    }
}
