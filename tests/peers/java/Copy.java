import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Copies a topic in transactions that carry the group's offsets, for ever. Any failure ends it:
 * whoever starts it again goes on behind what was committed. Usage: Copy BOOTSTRAP SOURCE TARGET
 * GROUP_PROTOCOL.
 */
public class Copy {
    public static void main(String[] arguments) {
        String target = arguments[2];
        Map<String, Object> shared = Map.of("bootstrap.servers", arguments[0]);
        Map<String, Object> consuming = new HashMap<>(shared);
        consuming.put("group.id", "copy-" + target);
        consuming.put("group.protocol", arguments[3]);
        consuming.put("isolation.level", "read_committed");
        consuming.put("enable.auto.commit", false);
        consuming.put("auto.offset.reset", "earliest");
        consuming.put("max.poll.records", 10);
        if (arguments[3].equals("classic")) {
            consuming.put("session.timeout.ms", 6000);
        }
        Map<String, Object> producing = new HashMap<>(shared);
        producing.put("transactional.id", "copy-" + target);
        var bytes = new ByteArraySerializer();
        var text = new ByteArrayDeserializer();
        try {
            var producer = new KafkaProducer<byte[], byte[]>(producing, bytes, bytes);
            var consumer = new KafkaConsumer<byte[], byte[]>(consuming, text, text);
            producer.initTransactions();
            consumer.subscribe(List.of(arguments[1]));
            while (true) {
                var records = consumer.poll(Duration.ofMillis(200));
                if (!records.isEmpty()) {
                    copy(consumer, producer, records, target);
                }
            }
        } catch (RuntimeException error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static void copy(
            KafkaConsumer<byte[], byte[]> consumer,
            KafkaProducer<byte[], byte[]> producer,
            ConsumerRecords<byte[], byte[]> records,
            String target) {
        producer.beginTransaction();
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (ConsumerRecord<byte[], byte[]> one : records) {
            producer.send(new ProducerRecord<>(target, one.partition(), one.key(), one.value()));
            var partition = new TopicPartition(one.topic(), one.partition());
            offsets.put(partition, new OffsetAndMetadata(one.offset() + 1));
        }
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
        producer.commitTransaction();
    }
}
