import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.Modifier;
import java.lang.reflect.ParameterizedType;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.CompactArrayOf;
import org.apache.kafka.common.protocol.types.Field;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.Utils;

/** Answers one line for each line of its input by what Kafka's own client makes of it: `op`, then arguments, by tabs. */
public class KafkaOracle {
    static final HexFormat HEX = HexFormat.of();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.US_ASCII);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = answer(line.split("\t", -1));
            } catch (Exception error) {
                answer = "error " + error.toString().replaceAll("\\s+", " ").replaceAll("[^ -~]", "?");
            }
            out.println(answer);
            out.flush();
        }
    }

    static String answer(String[] asked) throws Exception {
        switch (asked[0]) {
            case "schema": return schema(api(asked[1]), asked[2], Integer.parseInt(asked[3]));
            case "defaults": return defaults(message(api(asked[1]), asked[2]).getClass());
            case "message": return message(api(asked[1]), asked[2], Short.parseShort(asked[3]), HEX.parseHex(asked[4]));
            case "hash": return Integer.toString(Utils.murmur2(HEX.parseHex(asked[1])));
            case "partition":
                return Integer.toString(BuiltInPartitioner.partitionForKey(HEX.parseHex(asked[1]), Integer.parseInt(asked[2])));
            case "error": return Errors.forCode(Short.parseShort(asked[1])).name();
            case "write": return written(asked[1], asked[2].split(" "));
            case "read": return read(HEX.parseHex(asked[1]));
            default: throw new IllegalArgumentException(asked[0]);
        }
    }

    static ApiMessageType api(String key) {
        return ApiMessageType.fromApiKey(Short.parseShort(key));
    }

    static ApiMessage message(ApiMessageType api, String side) {
        return side.equals("request") ? api.newRequest() : api.newResponse();
    }

    /** The bytes of a message after it was read and written again. */
    static String message(ApiMessageType api, String side, short version, byte[] data) {
        ApiMessage message = message(api, side);
        ByteBuffer buffer = ByteBuffer.wrap(data);
        message.read(new ByteBufferAccessor(buffer), version);
        if (buffer.hasRemaining()) return "error " + buffer.remaining() + " bytes are left";
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer again = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(again), cache, version);
        return HEX.formatHex(again.array());
    }

    static String schema(ApiMessageType api, String side, int version) {
        Schema[] all = side.equals("request") ? api.requestSchemas() : api.responseSchemas();
        if (version >= all.length || all[version] == null) return "null";
        boolean header = (side.equals("request") ? api.requestHeaderVersion((short) version) - 1
            : api.responseHeaderVersion((short) version)) == 1;
        return "{\"flexible_header\":" + header + ",\"body\":" + type(all[version]) + "}";
    }

    static String type(Type type) {
        if (type instanceof Schema schema) {
            List<String> fields = new ArrayList<>();
            for (BoundField field : schema.fields()) {
                if (field.def.type instanceof TaggedFields tagged) {
                    for (Map.Entry<Integer, Field> each : tagged.fields().entrySet()) {
                        fields.add(field(each.getValue(), each.getKey().toString()));
                    }
                } else {
                    fields.add(field(field.def, "null"));
                }
            }
            return "{\"struct\":[" + String.join(",", fields) + "],\"nullable\":" + type.isNullable() + "}";
        }
        if (type.arrayElementType().isPresent()) {
            return "{\"array\":" + type(type.arrayElementType().get()) + ",\"nullable\":" + type.isNullable()
                + ",\"compact\":" + (type instanceof CompactArrayOf) + "}";
        }
        return "\"" + type + "\"";
    }

    static String field(Field field, String tag) {
        return "[\"" + field.name + "\"," + tag + "," + type(field.type) + "]";
    }

    /** What the fields of a message have where nothing was set, and those of its structs: name -> [value, fields]. */
    static String defaults(Class<?> kind) throws Exception {
        Constructor<?> constructor = kind.getDeclaredConstructor();
        constructor.setAccessible(true);
        Object empty = constructor.newInstance();
        List<String> fields = new ArrayList<>();
        for (java.lang.reflect.Field field : kind.getDeclaredFields()) {
            String name = field.getName();
            boolean own = !name.startsWith("_") && !name.equals("next") && !name.equals("prev");
            if (Modifier.isStatic(field.getModifiers()) || !own) continue;
            field.setAccessible(true);
            Class<?> nested = nested(field);
            String snake = name.replaceAll("([A-Z])", "_$1").toLowerCase();
            String inner = nested == null ? "null" : defaults(nested);
            fields.add("\"" + snake + "\":[" + value(field.get(empty)) + "," + inner + "]");
        }
        return "{" + String.join(",", fields) + "}";
    }

    static String value(Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) return String.valueOf(value);
        if (value instanceof Collection) return "[]";
        if (value instanceof String || value instanceof org.apache.kafka.common.Uuid) return "\"" + value + "\"";
        return value.getClass().isArray() ? "\"\"" : "{}";
    }

    static Class<?> nested(java.lang.reflect.Field field) {
        java.lang.reflect.Type type = field.getGenericType();
        if (type instanceof ParameterizedType of) {
            type = of.getActualTypeArguments()[0];
        } else if (Collection.class.isAssignableFrom(field.getType())) {
            type = ((ParameterizedType) field.getType().getGenericSuperclass()).getActualTypeArguments()[0];
        }
        boolean ours = type instanceof Class<?> named && named.getName().startsWith("org.apache.kafka.common.message.");
        return ours ? (Class<?>) type : null;
    }

    static byte[] bytes(String hex) {
        return hex.equals("-") ? null : HEX.parseHex(hex);
    }

    static String hex(byte[] data) {
        return data == null ? "-" : HEX.formatHex(data);
    }

    static byte[] bytes(ByteBuffer buffer) {
        return buffer == null ? null : Utils.toArray(buffer);
    }

    /** A batch of records, each `time,key,value` and `,name,value` for each header. */
    static String written(String codec, String[] given) {
        SimpleRecord[] records = new SimpleRecord[given.length];
        for (int i = 0; i < given.length; i++) {
            String[] parts = given[i].split(",", -1);
            List<Header> headers = new ArrayList<>();
            for (int at = 3; at < parts.length; at += 2) {
                headers.add(new RecordHeader(new String(bytes(parts[at]), StandardCharsets.UTF_8), bytes(parts[at + 1])));
            }
            records[i] = new SimpleRecord(
                Long.parseLong(parts[0]), bytes(parts[1]), bytes(parts[2]), headers.toArray(new Header[0]));
        }
        Compression compression = Compression.of(codec).build();
        return HEX.formatHex(bytes(MemoryRecords
            .withRecords((byte) 2, 0, compression, TimestampType.CREATE_TIME, records).buffer()));
    }

    /** Batches, each `control,epoch,lastOffset,maxTime`, and its records, each `offset,time,key,value` and headers. */
    static String read(byte[] data) {
        List<String> batches = new ArrayList<>();
        var records = MemoryRecords.readableRecords(ByteBuffer.wrap(data));
        for (var batch : records.batches()) {
            batch.ensureValid();
            List<String> parts = new ArrayList<>();
            parts.add(batch.isControlBatch() + "," + batch.partitionLeaderEpoch() + "," + batch.lastOffset() + ","
                + batch.maxTimestamp());
            for (Record record : batch) {
                record.ensureValid();
                StringBuilder text = new StringBuilder();
                text.append(record.offset()).append(',').append(record.timestamp()).append(',');
                text.append(hex(bytes(record.key()))).append(',').append(hex(bytes(record.value())));
                for (Header header : record.headers()) {
                    text.append(',').append(HEX.formatHex(header.key().getBytes(StandardCharsets.UTF_8)));
                    text.append(',').append(hex(header.value()));
                }
                parts.add(text.toString());
            }
            batches.add(String.join(" ", parts));
        }
        return String.join(";", batches);
    }
}
