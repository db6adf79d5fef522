// Fills scalable topics by the v5 client, one command a line of standard input, one line of answer each; see recording_scalable.py.
//   send TOPIC FROM N          queue TOPIC SUB N (every third of what it gets is left)      stream TOPIC SUB N (cumulative)
//   read TOPIC SUB [N]         (also follow: by a stream consumer; N are there)
//   txn TOPIC FROM N commit|abort|open [SUB ACKS]                write TOPIC FROM (until killed)
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.apache.pulsar.client.api.v5.*;
import org.apache.pulsar.client.api.v5.config.*;
import org.apache.pulsar.client.api.v5.schema.Schema;

public class ScalableWorld {
    static PulsarClient client;
    static final Duration WAIT = Duration.ofSeconds(5), LITTLE = Duration.ofSeconds(1);

    static QueueConsumer<String> queue(String topic, String subscription) throws Exception {
        return client.newQueueConsumer(Schema.string()).topic("topic://" + topic).subscriptionName(subscription)
            .subscriptionInitialPosition(SubscriptionInitialPosition.EARLIEST).subscribe();
    }

    static String text(Message<String> got) {
        return "[\"" + got.topic() + "\",\"" + got.key().orElse("") + "\",\"" + got.value() + "\","
            + got.publishTime().toEpochMilli() + "]";
    }

    static String run(String[] a) throws Exception {
        String topic = "topic://" + a[1];
        switch (a[0]) {
            case "send": {
                int from = Integer.parseInt(a[2]), n = Integer.parseInt(a[3]);
                try (Producer<String> p = client.newProducer(Schema.string()).topic(topic).create()) {
                    for (int i = from; i < from + n; i++) p.newMessage().key("k" + i % 17).value("v" + i).send();
                }
                return "" + n;
            }
            case "queue": {
                int n = Integer.parseInt(a[3]), got = 0, done = 0;
                try (QueueConsumer<String> q = queue(a[1], a[2])) {
                    for (Message<String> m; got < n && (m = q.receive(WAIT)) != null; got++)
                        if (got % 3 != 0) { q.acknowledge(m.id()); done++; }
                    Thread.sleep(2500);
                }
                return "" + done;
            }
            case "stream": {
                int n = Integer.parseInt(a[3]), got = 0;
                try (StreamConsumer<String> s = client.newStreamConsumer(Schema.string()).topic(topic).subscriptionName(a[2])
                        .subscriptionInitialPosition(SubscriptionInitialPosition.EARLIEST).subscribe()) {
                    Message<String> last = null;
                    for (Message<String> m; got < n && (m = s.receive(WAIT)) != null; got++) last = m;
                    if (last != null) s.acknowledgeCumulative(last.id());
                    Thread.sleep(2500);
                }
                return "" + got;
            }
            case "read": {
                List<String> rows = new ArrayList<>();
                int n = a.length > 3 ? Integer.parseInt(a[3]) : Integer.MAX_VALUE;
                try (QueueConsumer<String> q = queue(a[1], a[2])) {
                    for (Message<String> m; (m = q.receive(rows.size() < n ? WAIT : LITTLE)) != null; ) rows.add(text(m));
                }
                return rows.toString();
            }
            case "follow": {
                List<String> rows = new ArrayList<>();
                int n = Integer.parseInt(a[3]);
                try (StreamConsumer<String> s =
                        client.newStreamConsumer(Schema.string()).topic(topic).subscriptionName(a[2]).subscribe()) {
                    for (Message<String> m; (m = s.receive(rows.size() < n ? WAIT : LITTLE)) != null; ) {
                        rows.add(text(m));
                        s.acknowledgeCumulative(m.id());
                    }
                }
                return rows.toString();
            }
            case "txn": {
                int from = Integer.parseInt(a[2]), n = Integer.parseInt(a[3]);
                Transaction t = client.newTransaction();
                Producer<String> p = client.newProducer(Schema.string()).topic(topic).create();
                for (int i = from; i < from + n; i++) p.newMessage().key("k" + i % 17).value("t" + i).transaction(t).send();
                if (a.length > 5) {
                    QueueConsumer<String> q = queue(a[1], a[5]);
                    for (int i = 0; i < Integer.parseInt(a[6]); i++) {
                        Message<String> m = q.receive(WAIT);
                        if (m != null) q.acknowledge(m.id(), t);
                    }
                    Thread.sleep(2500);
                }
                if (a[4].equals("commit")) t.commit();
                if (a[4].equals("abort")) t.abort();
                Thread.sleep(500);
                return "\"" + t + " " + t.state() + "\"";
            }
            case "write": {
                int i = Integer.parseInt(a[2]);
                Producer<String> p = client.newProducer(Schema.string()).topic(topic).create();
                for (;; i++) { p.newMessage().key("k" + i % 17).value("v" + i).send(); System.out.println(i); }
            }
            default: throw new IllegalArgumentException(a[0]);
        }
    }

    public static void main(String[] args) throws Exception {
        client = PulsarClient.builder().serviceUrl(args[0]).operationTimeout(Duration.ofMinutes(4))
            .transactionPolicy(TransactionPolicy.builder().timeout(Duration.ofSeconds(Long.parseLong(args[1]))).build()).build();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) System.out.println("answer " + run(line.split(" ")));
        System.exit(0);
    }
}
