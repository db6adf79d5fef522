import com.fasterxml.jackson.databind.*;
import com.fasterxml.jackson.databind.node.*;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.time.*;
import java.util.*;
import org.apache.pulsar.client.api.*;
import org.apache.pulsar.client.api.schema.*;
import org.apache.pulsar.client.impl.schema.*;
import org.apache.pulsar.common.schema.*;

public class Produce {
    static final ObjectMapper M = new ObjectMapper();
    static PulsarClient client;
    static final String NS = "persistent://acme/shapes/";

    public enum Colour { RED, GREEN, BLUE }
    public static class Line { public String item; public int count; }
    public static class Everything {
        public boolean flag; public int small; public long big; public float single; public double wide;
        public String text; public byte[] raw; public Colour colour;
        public List<Line> lines; public Map<String, Long> counts; public Line first; public String nothing;
        public Instant at; public LocalDate day; public LocalTime hour;
        @org.apache.avro.reflect.AvroSchema("{\"type\":\"bytes\",\"logicalType\":\"decimal\",\"precision\":9,\"scale\":2}")
        public BigDecimal price;
    }
    public static class Plain { public long id; public String name; public double[] points; public Map<String, String> tags; public Line first; public byte[] raw; public Colour colour; public Boolean flag; }
    public static class Key { public String tenant; public int shard; public Key() {} public Key(String t, int s) { tenant = t; shard = s; } }
    public static class Val { public String name; public long amount; public Val() {} public Val(String n, long a) { name = n; amount = a; } }

    interface Fill<T> { void fill(TypedMessageBuilder<T> m, int i, ObjectNode row) throws Exception; }

    static <T> void send(String topic, Schema<T> schema, int n, int batch, CompressionType codec, Fill<T> fill, String... crypto) throws Exception {
        ProducerBuilder<T> b = client.newProducer(schema).topic(NS + topic).enableBatching(batch > 0).blockIfQueueFull(true)
            .compressionType(codec).batchingMaxPublishDelay(1, java.util.concurrent.TimeUnit.SECONDS);
        if (batch > 0) b = b.batchingMaxMessages(batch);
        if (crypto.length > 0) b = b.addEncryptionKey("k1").defaultCryptoKeyReader("file://" + crypto[0]);
        try (Producer<T> p = b.create()) {
            List<java.util.concurrent.CompletableFuture<MessageId>> sent = new ArrayList<>();
            List<ObjectNode> rows = new ArrayList<>();
            for (int i = 0; i < n; i++) {
                ObjectNode row = M.createObjectNode();
                row.put("topic", NS + topic).put("i", i).put("type", schema.getSchemaInfo().getType().toString());
                TypedMessageBuilder<T> m = p.newMessage().property("i", "" + i).eventTime(1795000000000L + i);
                fill.fill(m, i, row);
                rows.add(row); sent.add(m.sendAsync());
            }
            p.flush();
            for (int i = 0; i < n; i++) {
                MessageId got = sent.get(i).get();
                org.apache.pulsar.client.api.MessageIdAdv id = (org.apache.pulsar.client.api.MessageIdAdv) got;
                rows.get(i).putArray("id").add(id.getLedgerId()).add(id.getEntryId()).add(id.getBatchIndex());
                System.out.println(M.writeValueAsString(rows.get(i)));
            }
        }
    }

    interface Node { JsonNode of(Object v); }
    static <T> void primitive(String topic, Schema<T> schema, Node node, T... values) throws Exception {
        send(topic, schema, values.length, topic.equals("int64") ? 3 : 0, topic.equals("string") ? CompressionType.LZ4 : CompressionType.NONE,
            (m, i, row) -> { m.value(values[i]); row.set("value", node.of(values[i])); });
    }

    static String order(String... more) {
        return "{\"type\":\"record\",\"name\":\"Order\",\"namespace\":\"shop\",\"fields\":[{\"name\":\"id\",\"type\":\"long\"},{\"name\":\"item\",\"type\":\"string\"}"
            + String.join("", more) + "]}";
    }
    static Schema<GenericRecord> generic(SchemaType type, String definition) {
        return Schema.generic(SchemaInfoImpl.builder().name("Order").type(type).schema(definition.getBytes(StandardCharsets.UTF_8)).properties(Map.of()).build());
    }
    static void orders(String topic, SchemaType type) throws Exception {
        String qty = ",{\"name\":\"qty\",\"type\":\"int\",\"default\":7}", note = ",{\"name\":\"note\",\"type\":[\"null\",\"string\"],\"default\":null}";
        Schema<GenericRecord> one = generic(type, order()), two = generic(type, order(qty)), three = generic(type, order(qty, note));
        int k = 0;
        for (Schema<GenericRecord> s : List.of(one, two, three)) {
            int version = k++;
            send(topic, s, 6, version == 1 ? 4 : 0, version == 2 ? CompressionType.ZSTD : CompressionType.NONE, (m, i, row) -> {
                GenericRecordBuilder r = ((GenericSchema<GenericRecord>) s).newRecordBuilder();
                ObjectNode v = row.putObject("value");
                row.put("version", version);
                r.set("id", (long) (version * 100 + i)); v.put("id", version * 100 + i);
                r.set("item", "item \u00e9\u4e16 " + i); v.put("item", "item \u00e9\u4e16 " + i);
                if (version > 0) { r.set("qty", i * 3); v.put("qty", i * 3); }
                if (version > 1) { if (i % 2 == 0) { r.set("note", "note " + i); v.put("note", "note " + i); } else { r.set("note", null); v.putNull("note"); } }
                m.key("key-" + i % 3); row.put("key", "key-" + i % 3);
                m.value(r.build());
            });
        }
    }

    public static void main(String[] a) throws Exception {
        client = PulsarClient.builder().serviceUrl(a[0]).build();
        String crypto = a[1];
        orders("orders-avro", SchemaType.AVRO);
        orders("orders-json", SchemaType.JSON);
        // No schema, a tombstone, bytes that are no such record.
        send("orders-avro", Schema.BYTES, 2, 0, CompressionType.NONE, (m, i, row) -> { m.value(("raw " + i).getBytes()); row.putNull("value"); row.put("why", "no schema"); });
        Schema<byte[]> native_ = Schema.NATIVE_AVRO(new org.apache.avro.Schema.Parser().parse(order(",{\"name\":\"qty\",\"type\":\"int\",\"default\":7}", ",{\"name\":\"note\",\"type\":[\"null\",\"string\"],\"default\":null}")));
        send("orders-avro", native_, 2, 0, CompressionType.NONE, (m, i, row) -> {
            row.putNull("value");
            if (i == 0) { m.value(null).key("gone"); row.put("why", "tombstone").put("key", "gone"); }
            else { m.value(new byte[] {2, 100, 'x'}); row.put("why", "broken"); }
        });
        send("secret", generic(SchemaType.AVRO, order()), 2, 0, CompressionType.NONE, (m, i, row) -> {
            m.value(((GenericSchema<GenericRecord>) generic(SchemaType.AVRO, order())).newRecordBuilder().set("id", 1L).set("item", "x").build()); row.putNull("value"); row.put("why", "encrypted");
        }, crypto);
        send("everything", Schema.AVRO(SchemaDefinition.<Everything>builder().withPojo(Everything.class).withJSR310ConversionEnabled(true).build()), 5, 0, CompressionType.NONE, (m, i, row) -> {
            Everything e = new Everything();
            ObjectNode v = row.putObject("value");
            e.flag = i % 2 == 0; v.put("flag", e.flag);
            e.small = -i; v.put("small", e.small);
            e.big = Long.MAX_VALUE - i; v.put("big", e.big);
            e.single = i / 4f; v.put("single", i / 4.0);
            e.wide = i / 3.0; v.put("wide", e.wide);
            e.text = "t\"\n" + i; v.put("text", e.text);
            e.raw = new byte[] {(byte) i, (byte) 200}; v.put("raw", Base64.getEncoder().encodeToString(e.raw));
            e.colour = Colour.values()[i % 3]; v.put("colour", e.colour.toString());
            e.lines = new ArrayList<>(); ArrayNode lines = v.putArray("lines");
            for (int k = 0; k < i; k++) { Line l = new Line(); l.item = "l" + k; l.count = k; e.lines.add(l); lines.addObject().put("item", l.item).put("count", l.count); }
            e.counts = new TreeMap<>(); ObjectNode counts = v.putObject("counts");
            if (i > 1) { e.counts.put("a", 1L); e.counts.put("b", (long) i); counts.put("a", 1).put("b", i); }
            if (i > 2) { e.first = e.lines.get(0); v.putObject("first").put("item", "l0").put("count", 0); } else v.putNull("first");
            v.putNull("nothing");
            e.at = Instant.ofEpochMilli(1795253001599L + i); v.put("at", e.at.toString());
            e.day = LocalDate.of(2026, 11, 21 + i); v.put("day", e.day.toString());
            e.hour = LocalTime.of(9, 23, 12, 123_000_000 + i * 1_000_000); v.put("hour", e.hour.toString());
            e.price = new BigDecimal("12345.67").negate().add(new BigDecimal(i)); v.put("price", e.price.toString());
            m.value(e);
        });
        send("plain", Schema.JSON(Plain.class), 4, 2, CompressionType.NONE, (m, i, row) -> {
            Plain p = new Plain(); ObjectNode v = row.putObject("value");
            p.id = Long.MAX_VALUE - i; v.put("id", p.id);
            if (i > 0) { p.name = "n" + i; v.put("name", p.name); }
            p.points = new double[] {i, i / 2.0}; v.putArray("points").add((double) i).add(i / 2.0);
            p.tags = new TreeMap<>(Map.of("a", "b")); v.putObject("tags").put("a", "b");
            p.first = new Line(); p.first.item = "x"; p.first.count = i; v.putObject("first").put("item", "x").put("count", i);
            p.raw = new byte[] {1, (byte) 255}; v.put("raw", Base64.getEncoder().encodeToString(p.raw));
            p.colour = Colour.GREEN; v.put("colour", "GREEN");
            if (i == 2) { p.flag = true; v.put("flag", true); }
            m.value(p);
        });
        Node text = v -> new TextNode(v.toString());
        primitive("string", Schema.STRING, text, "", "h\u00e9llo \u4e16\u754c \"q\"", "x".repeat(300));
        primitive("int8", Schema.INT8, v -> new IntNode((Byte) v), (byte) -128, (byte) 0, (byte) 127);
        primitive("int16", Schema.INT16, v -> new IntNode((Short) v), Short.MIN_VALUE, (short) 1, Short.MAX_VALUE);
        primitive("int32", Schema.INT32, v -> new IntNode((Integer) v), Integer.MIN_VALUE, 1, Integer.MAX_VALUE);
        primitive("int64", Schema.INT64, v -> new LongNode((Long) v), Long.MIN_VALUE, 1L, Long.MAX_VALUE);
        primitive("float", Schema.FLOAT, v -> new DoubleNode((double) (Float) v), -1.5f, 0f, 3.25e10f, Float.POSITIVE_INFINITY);
        primitive("double", Schema.DOUBLE, v -> new DoubleNode((Double) v), -1.5, 1e300, 0.1, Double.NaN);
        primitive("bool", Schema.BOOL, v -> BooleanNode.valueOf((Boolean) v), true, false);
        primitive("date", Schema.DATE, v -> new TextNode(((Date) v).toInstant().toString()), new Date(1795253001599L), new Date(-1L));
        primitive("time", Schema.TIME, v -> new TextNode(LocalTime.ofNanoOfDay(((java.sql.Time) v).getTime() * 1_000_000).toString()), new java.sql.Time(33_792_123L), new java.sql.Time(1L));
        primitive("timestamp", Schema.TIMESTAMP, v -> new TextNode(((java.sql.Timestamp) v).toInstant().toString()), new java.sql.Timestamp(1795253001599L), new java.sql.Timestamp(-86_400_001L));
        primitive("instant", Schema.INSTANT, text, Instant.ofEpochSecond(1795253001L, 123_456_789), Instant.ofEpochSecond(-1L, 500_000_000));
        primitive("local-date", Schema.LOCAL_DATE, text, LocalDate.of(2026, 11, 21), LocalDate.of(1960, 2, 29));
        primitive("local-time", Schema.LOCAL_TIME, text, LocalTime.of(9, 23, 12, 123_456_789), LocalTime.of(0, 0, 1));
        primitive("local-date-time", Schema.LOCAL_DATE_TIME, text, LocalDateTime.of(2026, 11, 21, 9, 23, 12, 123_456_789), LocalDateTime.of(1960, 2, 29, 23, 59, 59));
        Schema<KeyValue<Key, Val>> inline = Schema.KeyValue(Schema.AVRO(Key.class), Schema.JSON(Val.class), KeyValueEncodingType.INLINE);
        send("kv-inline", inline, 3, 2, CompressionType.NONE, (m, i, row) -> {
            Key k = i == 2 ? null : new Key("t" + i, i); ObjectNode v = row.putObject("value");
            if (k == null) v.putNull("key"); else v.putObject("key").put("tenant", k.tenant).put("shard", i);
            v.putObject("value").put("name", "v" + i).put("amount", i * 10);
            m.value(new KeyValue<>(k, new Val("v" + i, i * 10)));
        });
        Schema<KeyValue<Integer, Val>> apart = Schema.KeyValue(Schema.INT32, Schema.AVRO(Val.class), KeyValueEncodingType.SEPARATED);
        for (int batch : new int[] {0, 2}) {
            send("kv-separated", apart, 3, batch, CompressionType.NONE, (m, i, row) -> {
                ObjectNode v = row.putObject("value");
                v.put("key", i + batch * 1000);
                if (i == 2) v.putNull("value"); else v.putObject("value").put("name", "v" + i).put("amount", i * 10);
                m.value(new KeyValue<>(i + batch * 1000, i == 2 ? null : new Val("v" + i, i * 10)));
            });
        }
        send("protobuf-native", Schema.PROTOBUF_NATIVE(com.google.protobuf.StringValue.class), 1, 0, CompressionType.NONE, (m, i, row) -> {
            m.value(com.google.protobuf.StringValue.of("hello")); row.putNull("value"); row.put("why", "protobuf");
        });
        client.close();
    }
}
