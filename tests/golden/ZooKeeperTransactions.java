import java.io.File;
import java.util.HexFormat;
import org.apache.jute.BinaryInputArchive;
import org.apache.jute.Record;
import org.apache.zookeeper.server.ByteBufferInputStream;
import org.apache.zookeeper.server.persistence.FileTxnLog;
import org.apache.zookeeper.server.persistence.TxnLog.TxnIterator;
import org.apache.zookeeper.txn.*;

/** Prints what ZooKeeper itself reads in the logs of a version-2 directory: a line a change, tab-separated. */
public class ZooKeeperTransactions {
    public static void main(String[] args) throws Exception {
        try (TxnIterator found = new FileTxnLog(new File(args[0])).read(0)) {
            do {
                TxnHeader head = found.getHeader();
                if (head == null) {
                    break;
                }
                String who = head.getZxid() + "\t" + head.getTime() + "\t" + head.getClientId() + "\t" + head.getCxid();
                Record txn = found.getTxn();
                if (txn instanceof MultiTxn multi) {
                    for (Txn part : multi.getTxns()) {
                        Record inner = switch (part.getType()) {
                            case 1, 15 -> new CreateTxn();
                            case 2 -> new DeleteTxn();
                            case 5 -> new SetDataTxn();
                            case 13 -> new CheckVersionTxn();
                            case -1 -> new ErrorTxn();
                            default -> throw new IllegalStateException("part " + part.getType());
                        };
                        ByteBufferInputStream.byteBuffer2Record(java.nio.ByteBuffer.wrap(part.getData()), inner);
                        print(who, head.getType() + "/" + part.getType(), inner);
                    }
                } else {
                    print(who, "" + head.getType(), txn);
                }
            } while (found.next());
        }
    }

    private static void print(String who, String type, Record txn) {
        String path = "";
        String data = "";
        String version = "";
        if (txn instanceof CreateTxn made) {
            path = made.getPath();
            data = hex(made.getData());
            version = made.getEphemeral() ? "ephemeral" : "";
        } else if (txn instanceof DeleteTxn deleted) {
            path = deleted.getPath();
        } else if (txn instanceof SetDataTxn set) {
            path = set.getPath();
            data = hex(set.getData());
            version = "" + set.getVersion();
        } else if (txn instanceof CreateContainerTxn made) {
            path = made.getPath();
            data = hex(made.getData());
        } else if (txn instanceof CloseSessionTxn closed) {
            path = String.join(" ", closed.getPaths2Delete());
        }
        System.out.println(who + "\t" + type + "\t" + path + "\t" + version + "\t" + data);
    }

    private static String hex(byte[] data) {
        return data == null ? "" : HexFormat.of().formatHex(data);
    }
}
