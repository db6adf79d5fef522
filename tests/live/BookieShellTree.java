import com.beust.jcommander.Parameter;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.bookkeeper.bookie.BookieShell;
import org.apache.commons.cli.Option;
import org.apache.commons.cli.Options;

/**
 * Prints as JSON what {@code bookkeeper shell} knows of its commands: options, and the parameters that its help names.
 *
 * <p>Run: {@code java -cp "$PULSAR_HOME/lib/*" BookieShellTree.java}.
 */
public final class BookieShellTree {
    public static void main(String[] words) throws Exception {
        Map<String, Object> tree = new TreeMap<>();
        for (Map.Entry<?, ?> one : ((Map<?, ?>) field(new BookieShell(), "commands")).entrySet()) {
            tree.put((String) one.getKey(), row(one.getValue()));
        }
        System.out.println(new ObjectMapper().writeValueAsString(tree));
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static Map<String, Object> row(Object command) throws Exception {
        List<Object> options = new ArrayList<>();
        String usage;
        if (method(command, "getOptions") != null) {
            for (Option option : ((Options) call(command, "getOptions")).getOptions()) {
                if (!"help".equals(option.getLongOpt())) {
                    options.add(option(option));
                }
            }
            usage = (String) call(command, "getUsage");
        } else {
            Object made = field(command, "bkCmd");
            Object spec = field(made, "spec");
            Object flags = call(spec, "flags");
            for (Field field : flags.getClass().getDeclaredFields()) {
                Parameter parameter = field.getAnnotation(Parameter.class);
                if (parameter != null && parameter.names().length > 0) {
                    options.add(option(field, parameter));
                }
            }
            usage = (String) call(made, "getUsage");
        }
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("options", options);
        found.put("usage", usage);
        return found;
    }

    private static Map<String, Object> option(Option option) {
        List<String> names = new ArrayList<>();
        names.add("-" + option.getOpt());
        if (option.getLongOpt() != null) {
            names.add("-" + option.getLongOpt());
        }
        names.add("--" + (option.getLongOpt() == null ? option.getOpt() : option.getLongOpt()));
        return option(names, option.hasArg());
    }

    private static Map<String, Object> option(Field field, Parameter parameter) {
        Map<String, Object> found = option(List.of(parameter.names()), field.getType() != boolean.class);
        if (parameter.required()) {
            found.put("required", true);
        }
        return found;
    }

    private static Map<String, Object> option(List<String> names, boolean takesValue) {
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("type", takesValue ? "String" : "boolean");
        if (!takesValue) {
            found.put("arity", "0");
        }
        found.put("names", names);
        return found;
    }

    private static Object field(Object target, String name) throws Exception {
        for (Class<?> type = target.getClass(); type != null; type = type.getSuperclass()) {
            for (Field field : type.getDeclaredFields()) {
                if (field.getName().equals(name)) {
                    field.setAccessible(true);
                    return field.get(target);
                }
            }
        }
        throw new NoSuchFieldException(name + " of " + target.getClass());
    }

    private static Object call(Object target, String name) throws Exception {
        return method(target, name).invoke(target);
    }

    private static Method method(Object target, String name) {
        for (Class<?> type = target.getClass(); type != null; type = type.getSuperclass()) {
            for (Method method : type.getDeclaredMethods()) {
                if (method.getName().equals(name) && method.getParameterCount() == 0 && !Modifier.isAbstract(method.getModifiers())) {
                    method.setAccessible(true);
                    return method;
                }
            }
        }
        return null;
    }
}
