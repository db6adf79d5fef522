// What a queue subscription of a scalable topic still gets: ScalableReader PULSAR-URL TOPIC SUBSCRIPTION prints the number of messages.
import java.time.Duration;
import org.apache.pulsar.client.api.v5.Message;
import org.apache.pulsar.client.api.v5.PulsarClient;
import org.apache.pulsar.client.api.v5.QueueConsumer;
import org.apache.pulsar.client.api.v5.schema.Schema;

public class ScalableReader {
    public static void main(String[] args) throws Exception {
        int messages = 0;
        try (PulsarClient client = PulsarClient.builder().serviceUrl(args[0]).build()) {
            QueueConsumer<String> consumer =
                client.newQueueConsumer(Schema.string()).topic(args[1]).subscriptionName(args[2]).subscribe();
            for (Message<String> got; (got = consumer.receive(Duration.ofSeconds(15))) != null; messages++) {
                consumer.acknowledge(got.id());
            }
        }
        System.out.println("messages " + messages);
        System.exit(0);
    }
}
