import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Consumers that are members of groups. Lines of its input, by tabs: `start`, a name, topics (by commas; or `~` and a
 * regular expression of RE2), and settings; `stop` and a name. It prints what happens to each: `record`, `assigned`,
 * `revoked`, `lost`, `stopped`, `failed`.
 */
public class KafkaMembers {
    static final Map<String, Member> MEMBERS = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] said = line.split("\t");
            if (said[0].equals("start")) {
                Member member = new Member(said);
                MEMBERS.put(said[1], member);
                member.start();
            } else {
                MEMBERS.remove(said[1]).stops = true;
            }
        }
        Runtime.getRuntime().halt(0);
    }

    static synchronized void tell(String... parts) {
        System.out.println(String.join("\t", parts));
        System.out.flush();
    }

    static final class Member extends Thread implements ConsumerRebalanceListener {
        final String name;
        final String[] said;
        volatile boolean stops;

        Member(String[] said) {
            this.said = said;
            name = said[1];
        }

        @Override
        public void run() {
            Properties settings = new Properties();
            settings.put("key.deserializer", StringDeserializer.class.getName());
            settings.put("value.deserializer", StringDeserializer.class.getName());
            settings.put("auto.offset.reset", "earliest");
            settings.put("enable.auto.commit", "false");
            for (int i = 3; i < said.length; i++) {
                String[] pair = said[i].split("=", 2);
                settings.put(pair[0], pair[1]);
            }
            try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
                if (said[2].startsWith("~")) {
                    consumer.subscribe(new SubscriptionPattern(said[2].substring(1)), this);
                } else {
                    consumer.subscribe(List.of(said[2].split(",")), this);
                }
                while (!stops) {
                    boolean any = false;
                    for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                        any = true;
                        tell("record", name, record.topic(), "" + record.partition(), "" + record.offset(), record.value());
                    }
                    if (any) {
                        consumer.commitSync();
                    }
                }
            } catch (Exception error) {
                tell("failed", name, error.toString());
                return;
            }
            tell("stopped", name);
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            told("assigned", partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            told("revoked", partitions);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            told("lost", partitions);
        }

        void told(String what, Collection<TopicPartition> partitions) {
            for (TopicPartition at : partitions) {
                tell(what, name, at.topic(), "" + at.partition());
            }
        }
    }
}
