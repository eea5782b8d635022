import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import org.apache.kafka.common.utils.Exit;

/** Runs the commands of Kafka's own tools, one for each line of its input: a class and its arguments, by tabs. */
public class KafkaTools {
    /** A tool wants the process to end. */
    static final class Ended extends RuntimeException {}

    static Integer status;
    static int printed;

    static final ByteArrayOutputStream PRINTED = new ByteArrayOutputStream();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = System.out;
        // Some tools keep the stream that they find.
        System.setOut(new PrintStream(PRINTED, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(PRINTED, true, StandardCharsets.UTF_8));
        Exit.setExitProcedure(KafkaTools::end);
        Exit.setHaltProcedure(KafkaTools::end);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            PRINTED.reset();
            status = null;
            run(line.split("\t"));
            if (status == null) {
                note(0);
            }
            byte[] said = Arrays.copyOf(PRINTED.toByteArray(), printed);
            answers.println(status + "\t" + Base64.getEncoder().encodeToString(said));
            answers.flush();
        }
    }

    static void end(int wanted, String message) {
        if (message != null) {
            System.out.println(message);
        }
        note(wanted);
        throw new Ended();
    }

    /** Keeps how a tool ended: some take what ends them for an error, and end once more. */
    static void note(int wanted) {
        if (status == null) {
            status = wanted;
            printed = PRINTED.size();
        }
    }

    static void run(String[] asked) {
        try {
            Object arguments = Arrays.copyOfRange(asked, 1, asked.length);
            Class.forName(asked[0]).getMethod("main", String[].class).invoke(null, arguments);
        } catch (InvocationTargetException thrown) {
            if (status == null) {
                thrown.getCause().printStackTrace();
                note(1);
            }
        } catch (ReflectiveOperationException error) {
            error.printStackTrace();
            note(1);
        }
    }
}
