import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;

/**
 * Nacks every message of a topic and prints when, and when each comes again: {@code ledger entry nacked again}, in ms.
 *
 * <p>Run: {@code java -cp "$PULSAR_HOME/lib/*" NackTimes.java SERVICE_URL TOPIC MESSAGES DELAY_MS SPACING_MS}.
 */
public final class NackTimes {
    public static void main(String[] args) throws Exception {
        int messages = Integer.parseInt(args[2]);
        long spacingMs = Long.parseLong(args[4]);
        try (PulsarClient client = PulsarClient.builder().serviceUrl(args[0]).build();
                Consumer<byte[]> consumer = client.newConsumer().topic(args[1]).subscriptionName("java")
                        .subscriptionType(SubscriptionType.Shared)
                        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                        .negativeAckRedeliveryDelay(Long.parseLong(args[3]), TimeUnit.MILLISECONDS).subscribe()) {
            List<Message<byte[]>> found = new ArrayList<>();
            for (int i = 0; i < messages; i++) {
                found.add(consumer.receive(30, TimeUnit.SECONDS));
            }
            long[] nacked = new long[messages];
            for (int i = 0; i < messages; i++) {
                if (i > 0) {
                    Thread.sleep(spacingMs);
                }
                nacked[i] = System.currentTimeMillis();
                consumer.negativeAcknowledge(found.get(i));
            }
            for (int i = 0; i < messages; i++) {
                Message<byte[]> again = consumer.receive(60, TimeUnit.SECONDS);
                long at = System.currentTimeMillis();
                consumer.acknowledge(again);
                for (int j = 0; j < messages; j++) {
                    if (found.get(j).getMessageId().equals(again.getMessageId())) {
                        System.out.println(j + " " + nacked[j] + " " + at);
                    }
                }
            }
        }
    }
}
