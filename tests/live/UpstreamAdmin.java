import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import com.fasterxml.jackson.databind.ObjectMapper;
import picocli.CommandLine;
import picocli.CommandLine.Model.ArgSpec;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Model.OptionSpec;
import picocli.CommandLine.Model.PositionalParamSpec;

/**
 * The real pulsar-admin in one JVM: {@code tree} prints what picocli knows of its commands, {@code run URL} answers lines.
 *
 * <p>Run: {@code java -cp "$PULSAR_HOME/lib/*" UpstreamAdmin.java tree}.
 */
public final class UpstreamAdmin {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] words) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err); // what is logged late, by threads of the client, is no answer
        if (words[0].equals("tree")) {
            CommandLine root = commander(tool(new Properties()));
            out.println(JSON.writeValueAsString(tree(root)));
            out.flush();
            Runtime.getRuntime().halt(0);
        }
        answer(words[1], out);
        Runtime.getRuntime().halt(0);
    }

    /** One line in: a JSON array of words. One line out: {"exit", "stdout", "stderr"}. */
    private static void answer(String url, PrintStream out) throws Exception {
        Properties settings = new Properties();
        settings.setProperty("webServiceUrl", url);
        CommandLine commander = commander(tool(settings)); // takes a tenth of a second; each line begins with the initial values
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = JSON.readValue(line, String[].class);
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            ByteArrayOutputStream errors = new ByteArrayOutputStream();
            PrintStream oldErr = System.err;
            System.setOut(new PrintStream(printed, true, "UTF-8"));
            System.setErr(new PrintStream(errors, true, "UTF-8"));
            int code;
            try {
                PrintWriter stdout = new PrintWriter(System.out, true);
                commander.setOut(stdout);
                commander.setErr(new PrintWriter(System.err, true));
                code = commander.execute(words);
                stdout.flush();
            } finally {
                System.out.flush();
                System.err.flush();
                System.setOut(oldErr);
                System.setErr(oldErr);
            }
            Map<String, Object> said = new LinkedHashMap<>();
            said.put("exit", code);
            said.put("stdout", printed.toString("UTF-8"));
            said.put("stderr", errors.toString("UTF-8"));
            out.println(JSON.writeValueAsString(said));
            out.flush();
        }
    }

    private static Object tool(Properties settings) throws Exception {
        var make = Class.forName("org.apache.pulsar.admin.cli.PulsarAdminTool").getDeclaredConstructor(Properties.class);
        make.setAccessible(true);
        return make.newInstance(settings);
    }

    private static CommandLine commander(Object tool) throws Exception {
        return (CommandLine) field(tool, "commander");
    }

    private static Object field(Object owner, String name) throws Exception {
        var field = owner.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field.get(owner);
    }

    private static Map<String, Object> tree(CommandLine command) {
        CommandSpec spec = command.getCommandSpec();
        Map<String, Object> found = new LinkedHashMap<>();
        if (spec.aliases().length > 0) {
            found.put("aliases", spec.aliases());
        }
        if (spec.usageMessage().hidden()) {
            found.put("hidden", true);
        }
        Object user = spec.userObject();
        if (user != null && user.getClass().isAnnotationPresent(Deprecated.class)) {
            found.put("deprecated", true);
        }
        List<Object> options = new ArrayList<>();
        for (OptionSpec option : spec.options()) {
            Map<String, Object> one = argument(option);
            one.put("names", option.names());
            options.add(one);
        }
        if (!options.isEmpty()) {
            found.put("options", options);
        }
        List<Object> parameters = new ArrayList<>();
        for (PositionalParamSpec parameter : spec.positionalParameters()) {
            Map<String, Object> one = argument(parameter);
            one.put("label", parameter.paramLabel());
            parameters.add(one);
        }
        if (!parameters.isEmpty()) {
            found.put("parameters", parameters);
        }
        Map<String, Object> commands = new TreeMap<>();
        for (Map.Entry<String, CommandLine> one : command.getSubcommands().entrySet()) {
            if (one.getKey().equals(one.getValue().getCommandName())) {
                commands.put(one.getKey(), tree(one.getValue()));
            }
        }
        if (!commands.isEmpty()) {
            found.put("commands", commands);
        }
        return found;
    }

    private static Map<String, Object> argument(ArgSpec spec) {
        Map<String, Object> one = new LinkedHashMap<>();
        one.put("type", spec.type().getSimpleName());
        if (spec.type().isEnum()) {
            List<String> values = new ArrayList<>();
            for (Object value : spec.type().getEnumConstants()) {
                values.add(value.toString());
            }
            one.put("values", values);
        }
        one.put("arity", spec.arity().toString());
        if (spec.required()) {
            one.put("required", true);
        }
        if (spec.hidden()) {
            one.put("hidden", true);
        }
        for (var converter : spec.converters()) {
            one.put("converter", converter.getClass().getSimpleName());
        }
        if (spec.splitRegex() != null && !spec.splitRegex().isEmpty()) {
            one.put("split", spec.splitRegex());
        }
        String preset = spec.defaultValue();
        if (preset == null) {
            Object initial = spec.initialValue();
            preset = initial == null || initial instanceof Collection || initial instanceof Map ? null : initial.toString();
        }
        if (preset != null) {
            one.put("default", preset);
        }
        return one;
    }
}
