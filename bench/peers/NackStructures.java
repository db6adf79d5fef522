import it.unimi.dsi.fastutil.longs.Long2ObjectAVLTreeMap;
import it.unimi.dsi.fastutil.longs.Long2ObjectMap;
import it.unimi.dsi.fastutil.longs.Long2ObjectOpenHashMap;
import it.unimi.dsi.fastutil.longs.Long2ObjectSortedMap;
import java.util.HashMap;
import org.apache.pulsar.client.impl.MessageIdImpl;
import org.apache.pulsar.common.util.collections.ConcurrentLongLongPairHashMap;
import org.roaringbitmap.longlong.Roaring64Bitmap;

/**
 * Heap and add rate of the three structures upstream's NegativeAcksTracker has had, with upstream's own classes.
 *
 * <p>Run: {@code java -Xmx8g -cp "$PULSAR_HOME/lib/*" NackStructures.java ENTRIES ACKNOWLEDGED_EVERY}. One entry a
 * millisecond, 50,000 entries a ledger, a delay of one hour; every ACKNOWLEDGED_EVERY-th entry is left out (0: none).
 * Prints one JSON object a line: structure, bits (-1: none), entries, bytesPerEntry, addsPerSecond.
 */
public final class NackStructures {
    private static final long NOW = 1_700_000_000_000L;
    private static final long DELAY = 3_600_000L;
    private static final int ENTRIES_PER_LEDGER = 50_000;

    interface Put {
        void put(long ledger, long entry, long time);
    }

    private static long used() {
        for (int i = 0; i < 4; i++) {
            System.gc();
        }
        return Runtime.getRuntime().totalMemory() - Runtime.getRuntime().freeMemory();
    }

    private static long fill(Put structure, long entries, long acknowledgedEvery) {
        long count = 0;
        for (long i = 0; i < entries; i++) {
            if (acknowledgedEvery > 0 && i % acknowledgedEvery == 0) {
                continue;
            }
            structure.put(10 + i / ENTRIES_PER_LEDGER, i % ENTRIES_PER_LEDGER, NOW + i + DELAY);
            count++;
        }
        return count;
    }

    private static void measure(String name, int bits, long entries, long acknowledgedEvery) {
        Object[] holder = new Object[1];
        fill(make(name, bits, holder), 100_000, acknowledgedEvery);
        holder[0] = null;
        long before = used();
        Put structure = make(name, bits, holder);
        long start = System.nanoTime();
        long count = fill(structure, entries, acknowledgedEvery);
        double seconds = (System.nanoTime() - start) / 1e9;
        long size = used() - before;
        System.out.printf(
                "{\"structure\":\"%s\",\"bits\":%d,\"entries\":%d,\"bytesPerEntry\":%.4f,\"addsPerSecond\":%.0f}%n",
                name, bits, count, (double) size / count, count / seconds);
        if (holder[0] == null) {
            throw new IllegalStateException("the structure was collected before it was measured");
        }
    }

    private static Put make(String name, int bits, Object[] holder) {
        switch (name) {
            case "HashMap": {
                HashMap<MessageIdImpl, Long> map = new HashMap<>();
                holder[0] = map;
                return (ledger, entry, time) -> map.put(new MessageIdImpl(ledger, entry, -1), time);
            }
            case "ConcurrentLongLongPairHashMap": {
                ConcurrentLongLongPairHashMap map =
                        ConcurrentLongLongPairHashMap.newBuilder().autoShrink(true).concurrencyLevel(1).build();
                holder[0] = map;
                return (ledger, entry, time) -> map.put(ledger, entry, 1, time);
            }
            default: {
                Long2ObjectSortedMap<Long2ObjectMap<Roaring64Bitmap>> map = new Long2ObjectAVLTreeMap<>();
                holder[0] = map;
                return (ledger, entry, time) -> {
                    long bucket = time & (-1L << bits);
                    Long2ObjectMap<Roaring64Bitmap> ledgers = map.get(bucket);
                    if (ledgers == null) {
                        ledgers = new Long2ObjectOpenHashMap<>();
                        map.put(bucket, ledgers);
                    }
                    Roaring64Bitmap bitmap = ledgers.get(ledger);
                    if (bitmap == null) {
                        bitmap = new Roaring64Bitmap();
                        ledgers.put(ledger, bitmap);
                    }
                    bitmap.add(entry);
                };
            }
        }
    }

    public static void main(String[] args) {
        long entries = Long.parseLong(args[0]);
        long acknowledgedEvery = Long.parseLong(args[1]);
        measure("HashMap", -1, entries, acknowledgedEvery);
        measure("ConcurrentLongLongPairHashMap", -1, entries, acknowledgedEvery);
        for (int bits : new int[] {0, 8, 10, 16}) {
            measure("Long2ObjectAVLTreeMap", bits, entries, acknowledgedEvery);
        }
    }
}
