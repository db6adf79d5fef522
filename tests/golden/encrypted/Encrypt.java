import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Base64;
import java.util.Map;
import java.util.Set;
import org.apache.pulsar.client.api.CryptoKeyReader;
import org.apache.pulsar.client.api.EncryptionKeyInfo;
import org.apache.pulsar.client.impl.crypto.MessageCryptoBc;
import org.apache.pulsar.common.api.proto.MessageMetadata;

/**
 * Payloads encrypted by the class that Pulsar's Java client encrypts with. Arguments: NAME=PUBLIC.pem … (a payload each, and one for
 * all of them together); prints lines of TSV: names, MessageMetadata, encrypted payload (both base64), plain text.
 *
 * Run: java -cp 'PULSAR/lib/*' Encrypt.java rsa=rsa.pub.pem …
 */
public class Encrypt {
    public static void main(String[] args) throws Exception {
        Map<String, String> files = new java.util.TreeMap<>();
        for (String arg : args) {
            files.put(arg.split("=")[0], arg.split("=")[1]);
        }
        CryptoKeyReader reader = new CryptoKeyReader() {
            public EncryptionKeyInfo getPublicKey(String name, Map<String, String> metadata) {
                try {
                    return new EncryptionKeyInfo(Files.readAllBytes(Path.of(files.get(name))), Map.of("version", "1"));
                } catch (Exception e) {
                    throw new RuntimeException(e);
                }
            }

            public EncryptionKeyInfo getPrivateKey(String name, Map<String, String> metadata) {
                return null;
            }
        };
        for (String name : files.keySet()) {
            print(Set.of(name), reader, "order 42 of " + name);
        }
        print(files.keySet(), reader, "order 42 of all");
        print(Set.of(files.keySet().iterator().next()), reader, "");
    }

    static void print(Set<String> names, CryptoKeyReader reader, String text) throws Exception {
        MessageCryptoBc crypto = new MessageCryptoBc("golden", true);
        crypto.addPublicKeyCipher(names, reader);
        MessageMetadata metadata = new MessageMetadata().setProducerName("p").setSequenceId(0).setPublishTime(1700000000000L);
        byte[] plain = text.getBytes(StandardCharsets.UTF_8);
        ByteBuffer out = ByteBuffer.allocate(crypto.getMaxOutputSize(plain.length));
        crypto.encrypt(names, reader, () -> metadata, ByteBuffer.wrap(plain), out);
        byte[] sealed = new byte[out.remaining()];
        out.get(sealed);
        Base64.Encoder base64 = Base64.getEncoder();
        System.out.println(String.join(",", names) + "\t" + base64.encodeToString(metadata.toByteArray()) + "\t"
                + base64.encodeToString(sealed) + "\t" + text);
    }
}
