import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.util.HexFormat;
import org.roaringbitmap.longlong.Roaring64NavigableMap;

/**
 * Writes roaring64.tsv with the Java library: a name, the ranges "start-end/step" (inclusive) and the portable bytes.
 *
 * <p>Run: {@code java -cp "$PULSAR_HOME/lib/*" WriteBitmaps.java > roaring64.tsv}.
 */
public final class WriteBitmaps {
    private static void write(String name, String ranges) throws Exception {
        Roaring64NavigableMap.SERIALIZATION_MODE = Roaring64NavigableMap.SERIALIZATION_MODE_PORTABLE;
        Roaring64NavigableMap bitmap = new Roaring64NavigableMap();
        for (String range : ranges.split(",")) {
            String[] parts = range.split("[-/]");
            for (long id = Long.parseLong(parts[0]); id <= Long.parseLong(parts[1]); id += Long.parseLong(parts[2])) {
                bitmap.addLong(id);
                if (id == Long.MAX_VALUE) {
                    break;
                }
            }
        }
        bitmap.runOptimize();
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        bitmap.serialize(new DataOutputStream(bytes));
        System.out.println(name + "\t" + ranges + "\t" + HexFormat.of().formatHex(bytes.toByteArray()));
    }

    public static void main(String[] args) throws Exception {
        write("one run", "70000-70255/1");
        write("every tenth missing", "1-9/1,11-19/1,21-29/1");
        write("single", "5-5/1");
        write("array", "0-600/3");
        write("bitset", "0-49998/2");
        write("two containers", "65530-65545/1");
        write("full container", "0-65535/1");
        write("above 32 bits", "4294967290-4294967300/1");
        write("last id", "9223372036854775805-9223372036854775807/1");
        write("far apart", "1-1/1,4611686018427387904-4611686018427387904/1");
    }
}
