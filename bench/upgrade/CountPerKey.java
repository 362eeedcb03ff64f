import java.io.BufferedWriter;
import java.io.FileWriter;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.client.deployment.StandaloneClusterId;
import org.apache.flink.client.program.PackagedProgram;
import org.apache.flink.client.program.PackagedProgramUtils;
import org.apache.flink.client.program.rest.RestClusterClient;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.GlobalConfiguration;
import org.apache.flink.connector.file.src.FileSource;
import org.apache.flink.connector.file.src.reader.TextLineInputFormat;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.runtime.jobgraph.JobGraph;
import org.apache.flink.runtime.jobgraph.SavepointRestoreSettings;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/**
 * The query of bench.upgrade for Flink: counts the lines of files per line, as the one for Spark does.
 *
 * <p>Arguments: the folder of the input, the folder of the output, the version of the code.
 */
public class CountPerKey {
  public static void main(String[] args) throws Exception {
    StreamExecutionEnvironment flink = StreamExecutionEnvironment.getExecutionEnvironment();
    FileSource<String> files =
        FileSource.forRecordStreamFormat(
                new TextLineInputFormat(), new org.apache.flink.core.fs.Path(args[0]))
            .monitorContinuously(Duration.ofMillis(100))
            .build();
    flink
        .fromSource(files, WatermarkStrategy.noWatermarks(), "files")
        .uid("files")
        .keyBy(line -> line)
        .process(new Count())
        .uid("count")
        .sinkTo(new Times(args[1], args[2]))
        .uid("times");
    flink.execute("count per key");
  }

  /** How often each key has come. */
  static class Count extends KeyedProcessFunction<String, String, Tuple2<String, Long>> {
    private transient ValueState<Long> count;

    @Override
    public void open(OpenContext context) {
      count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
    }

    @Override
    public void processElement(String key, Context context, Collector<Tuple2<String, Long>> out)
        throws Exception {
      Long before = count.value();
      long now = before == null ? 1 : before + 1;
      count.update(now);
      out.collect(Tuple2.of(key, now));
    }
  }

  /** Leaves behind when the first and the last output of each task were written. */
  static class Times implements Sink<Tuple2<String, Long>> {
    private final String folder;
    private final String version;

    Times(String folder, String version) {
      this.folder = folder;
      this.version = version;
    }

    @Override
    public SinkWriter<Tuple2<String, Long>> createWriter(WriterInitContext context) throws IOException {
      int task = context.getTaskInfo().getIndexOfThisSubtask();
      Path file = Path.of(folder, version + "-" + task);
      BufferedWriter lines = new BufferedWriter(new FileWriter(file.toFile(), true));
      return new SinkWriter<>() {
        private long last;
        private long rows;
        private long said;

        @Override
        public void write(Tuple2<String, Long> row, Context context) throws IOException {
          last = System.currentTimeMillis();
          rows++;
          if (rows == 1) {
            say("first", row.f1);
          } else if (last - said >= 200) {
            say("on", row.f1);
          }
        }

        @Override
        public void flush(boolean endOfInput) {}

        @Override
        public void close() throws IOException {
          say("last", 0);
          lines.close();
        }

        private void say(String what, long count) throws IOException {
          lines.write(what + " " + last + " " + rows + " " + count + "\n");
          lines.flush();
          said = last;
        }
      };
    }
  }
}

/**
 * Swaps code as an operator would that runs already: the new job's graph is made before the old job stops.
 *
 * <p>Arguments: the folder of the configuration, the job's id, the folder for savepoints, their format, the jar, and
 * those of the job. It begins when a line comes in, and says the new job's id.
 */
class Swap {
  public static void main(String[] args) throws Exception {
    Configuration conf = GlobalConfiguration.loadConfiguration(args[0]);
    PackagedProgram program =
        PackagedProgram.newBuilder()
            .setJarFile(Path.of(args[4]).toFile())
            .setEntryPointClassName("CountPerKey")
            .setArguments(args[5], args[6], args[7])
            .build();
    try (RestClusterClient<StandaloneClusterId> cluster =
        new RestClusterClient<>(conf, StandaloneClusterId.getInstance())) {
      JobGraph graph = PackagedProgramUtils.createJobGraph(program, conf, 2, true);
      JobID job = JobID.fromHexString(args[1]);
      cluster.getJobStatus(job).get();
      System.out.println("ready");
      System.in.read();
      SavepointFormatType format = SavepointFormatType.valueOf(args[3]);
      long begun = System.currentTimeMillis();
      String savepoint = cluster.stopWithSavepoint(job, false, args[2], format).get(10, TimeUnit.MINUTES);
      long stopped = System.currentTimeMillis();
      graph.setSavepointRestoreSettings(SavepointRestoreSettings.forPath(savepoint));
      JobID id = cluster.submitJob(graph).get(10, TimeUnit.MINUTES);
      long submitted = System.currentTimeMillis();
      System.out.println(id + " " + begun + " " + stopped + " " + submitted + " " + savepoint);
    }
  }
}
