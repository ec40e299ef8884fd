import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.security.KeyStore;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Apache Kafka's tools and clients in one virtual machine, as lines of JSON ask for, and answers
 * each with a line of JSON. A line has one of: `tool` (a class) with `arguments`; `clients`, a list
 * of clients that run at once; `store`, a PKCS12 file whose key and certificates go to other stores.
 */
public class Peer {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int AT_ONCE = 4;
    private static final Duration POLL = Duration.ofMillis(200);
    private static final long READ_MS = 30_000;
    private static final byte[] VALUE = new byte[100];

    /** The end of a tool, instead of the end of the machine. */
    private static final class Ended extends Error {
        private static final long serialVersionUID = 1;
        /** That of the first call: a tool that catches everything ends once more. */
        static Integer status;

        Ended(int last) {
            super("ended with " + last, null, false, false);
            status = status == null ? Integer.valueOf(last) : status;
        }
    }

    public static void main(String[] none) throws Exception {
        PrintStream answers = System.out;
        Exit.setExitProcedure((status, message) -> {
            throw new Ended(status);
        });
        Exit.setHaltProcedure((status, message) -> {
            throw new Ended(status);
        });
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = lines.readLine()) != null; ) {
            JsonNode asked = JSON.readTree(line);
            Object answer;
            if (asked.has("tool")) {
                answer = runTool(asked);
            } else if (asked.has("clients")) {
                answer = runClients(asked.get("clients"));
            } else {
                answer = writeStores(asked);
            }
            answers.println(JSON.writeValueAsString(answer));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    // --- tools ----------------------------------------------------------------------------------

    private static Object runTool(JsonNode asked) throws Exception {
        var words = new ArrayList<String>();
        asked.get("arguments").forEach(word -> words.add(word.asText()));
        var main = Class.forName(asked.get("tool").asText()).getMethod("main", String[].class);
        var out = new ByteArrayOutputStream();
        var error = new ByteArrayOutputStream();
        PrintStream oldOut = System.out;
        PrintStream oldError = System.err;
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(error, true, StandardCharsets.UTF_8));
        int status = 0;
        Ended.status = null;
        try {
            // Scala's tools print to what their console had when it was first used.
            scala.Console.withOut(System.out, () -> scala.Console.withErr(System.err, () -> {
                try {
                    main.invoke(null, (Object) words.toArray(new String[0]));
                } catch (ReflectiveOperationException failure) {
                    throw sneaky(failure instanceof InvocationTargetException
                            ? failure.getCause() : failure);
                }
                return null;
            }));
        } catch (Ended ended) {
            status = Ended.status;
        } catch (Throwable failure) {
            status = 1;
            failure.printStackTrace(System.err);
        } finally {
            System.out.flush();
            System.err.flush();
            System.setOut(oldOut);
            System.setErr(oldError);
        }
        return Map.of("status", status, "out", text(out), "error", text(error));
    }

    private static String text(ByteArrayOutputStream bytes) {
        return bytes.toString(StandardCharsets.UTF_8);
    }

    @SuppressWarnings("unchecked")
    private static <T extends Throwable> RuntimeException sneaky(Throwable failure) throws T {
        throw (T) failure;
    }

    // --- clients --------------------------------------------------------------------------------

    private static Object runClients(JsonNode clients) throws Exception {
        var pool = Executors.newFixedThreadPool(AT_ONCE);
        Map<String, Future<Map<String, Object>>> running = new LinkedHashMap<>();
        for (JsonNode one : clients) {
            running.put(one.get("name").asText(), pool.submit(() -> new Client(one).run()));
        }
        Map<String, Object> found = new LinkedHashMap<>();
        for (var one : running.entrySet()) {
            found.put(one.getKey(), one.getValue().get());
        }
        pool.shutdown();
        return found;
    }

    private static final class Client {
        private final String topic;
        private final String group;
        private final JsonNode actions;
        private final Map<String, Object> properties = new HashMap<>();

        Client(JsonNode asked) {
            topic = asked.get("topic").asText();
            group = asked.get("group").asText();
            actions = asked.get("actions");
            asked.get("properties").properties().forEach(
                    one -> properties.put(one.getKey(), one.getValue().asText()));
        }

        /** By action what came of it; an error by its class. */
        Map<String, Object> run() {
            Map<String, Object> found = new LinkedHashMap<>();
            for (JsonNode action : actions) {
                Object outcome;
                try {
                    outcome = act(action.asText());
                } catch (Exception failure) {
                    Throwable cause = failure;
                    while (cause.getCause() != null && (cause instanceof ExecutionException
                            || cause.getClass().getSimpleName().equals("KafkaException"))) {
                        cause = cause.getCause();
                    }
                    outcome = cause.getClass().getSimpleName();
                    found.put(action.asText() + " error", String.valueOf(cause.getMessage()));
                }
                found.put(action.asText(), outcome);
            }
            return found;
        }

        private Object act(String action) throws Exception {
            switch (action) {
                case "create":
                    return create();
                case "describe":
                    return describe();
                case "acks":
                    return produce(Map.of("acks", "all", "enable.idempotence", "false"));
                case "idempotent":
                    return produce(Map.of("acks", "all", "enable.idempotence", "true"));
                case "transaction":
                    return produce(Map.of("transactional.id", group));
                case "again":
                    return produceAgain();
                case "flood":
                    return flood();
                default:
                    return consume(action);
            }
        }

        private Object create() throws Exception {
            try (var admin = Admin.create(properties)) {
                admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
            }
            return "done";
        }

        private Object describe() throws Exception {
            try (var admin = Admin.create(properties)) {
                return admin.describeCluster().nodes().get().size();
            }
        }

        private KafkaProducer<byte[], byte[]> producer(Map<String, Object> more) {
            Map<String, Object> all = new HashMap<>(properties);
            all.putAll(more);
            var bytes = new ByteArraySerializer();
            return new KafkaProducer<>(all, bytes, bytes);
        }

        private Object produce(Map<String, Object> more) throws Exception {
            var producer = producer(more);
            try {
                boolean isTransactional = more.containsKey("transactional.id");
                if (isTransactional) {
                    producer.initTransactions();
                    producer.beginTransaction();
                }
                var sent = producer.send(new ProducerRecord<>(topic, VALUE));
                if (isTransactional) {
                    producer.commitTransaction();
                }
                return sent.get().offset() >= 0 ? "done" : "no offset";
            } finally {
                producer.close(Duration.ofSeconds(5));
            }
        }

        /** Sends for three seconds; how many times the client has logged in again meanwhile. */
        private Object produceAgain() throws Exception {
            var producer = producer(Map.of());
            try {
                long end = System.nanoTime() + 3_000_000_000L;
                while (System.nanoTime() < end) {
                    producer.send(new ProducerRecord<>(topic, VALUE)).get();
                    Thread.sleep(20);
                }
                return metric(producer, "successful-reauthentication-total");
            } finally {
                producer.close(Duration.ofSeconds(5));
            }
        }

        /** Sends 1 MB; the longest time that the broker has asked the client to wait, in ms. */
        private Object flood() throws Exception {
            var producer = producer(Map.of("batch.size", "65536", "linger.ms", "5"));
            try {
                Future<?> last = null;
                for (int count = 0; count < 1000; count++) {
                    last = producer.send(new ProducerRecord<>(topic, new byte[1000]));
                }
                last.get();
                return metric(producer, "produce-throttle-time-max");
            } finally {
                producer.close(Duration.ofSeconds(5));
            }
        }

        private static double metric(KafkaProducer<byte[], byte[]> producer, String name) {
            double found = 0;
            for (Metric one : producer.metrics().values()) {
                boolean isOfAll = !one.metricName().tags().containsKey("node-id");
                if (isOfAll && one.metricName().name().equals(name)) {
                    found = (Double) one.metricValue();
                }
            }
            return found;
        }

        /** Reads what was committed in a group of a protocol; how far the group has committed. */
        private Object consume(String protocol) {
            Map<String, Object> all = new HashMap<>(properties);
            all.put("group.id", group + "-" + protocol);
            all.put("group.protocol", protocol);
            all.put("auto.offset.reset", "earliest");
            all.put("enable.auto.commit", "false");
            all.put("isolation.level", "read_committed");
            var text = new ByteArrayDeserializer();
            try (var consumer = new KafkaConsumer<byte[], byte[]>(all, text, text)) {
                consumer.subscribe(List.of(topic));
                long end = System.nanoTime() + READ_MS * 1_000_000;
                for (int seen = 0; seen < 3 && System.nanoTime() < end; ) {
                    seen += consumer.poll(POLL).count();
                }
                consumer.commitSync();
                var partition = new TopicPartition(topic, 0);
                var committed = consumer.committed(java.util.Set.of(partition)).get(partition);
                return committed == null ? -1 : committed.offset();
            }
        }
    }

    // --- stores ---------------------------------------------------------------------------------

    /** Copies a key and its chain to a JKS store; the last of the chain to trust stores. */
    private static Object writeStores(JsonNode asked) throws Exception {
        char[] password = asked.get("password").asText().toCharArray();
        var source = KeyStore.getInstance("PKCS12");
        try (var input = new FileInputStream(asked.get("store").asText())) {
            source.load(input, password);
        }
        String alias = source.aliases().nextElement();
        var chain = source.getCertificateChain(alias);
        var keys = KeyStore.getInstance("JKS");
        keys.load(null, null);
        keys.setKeyEntry(alias, source.getKey(alias, password), password, chain);
        write(keys, asked.get("keys").asText(), password);
        for (String type : List.of("JKS", "PKCS12")) {
            var trusted = KeyStore.getInstance(type);
            trusted.load(null, null);
            trusted.setCertificateEntry("ca", chain[chain.length - 1]);
            write(trusted, asked.get(type).asText(), password);
        }
        return Map.of();
    }

    private static void write(KeyStore store, String path, char[] password) throws Exception {
        try (var output = new FileOutputStream(path)) {
            store.store(output, password);
        }
    }
}
