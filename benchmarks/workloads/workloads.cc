// One step of a network through the exported functions, again and again: the rows of benchmarks/table. A process measures one
// workload, so that its peak memory is that of the workload.
#include <sys/resource.h>

#include <cstring>
#include <ctime>
#include <filesystem>
#include <iterator>
#include <memory>

#include "../bench_util.h"
#include "networks.h"

namespace {

using workloads::Does;
using workloads::Must;
using workloads::Net;
using workloads::Tensor;
using workloads::Workload;

constexpr char kHelp[] =
    "usage: workloads --only NAME [options]\n"
    "  --only NAME      the workload to measure; --list has the names\n"
    "  --list           the names, one a line, with what they are\n"
    "  --bf16           parameters and inputs in bf16 (optimizer states stay f32)\n"
    "  --channels-first images in NCHW, kernels in OIHW: rn50-*, mobilenetv2-*, and layers alone that are no rows of the table:\n"
    "                   conv-56-b8, conv-56-fb-b8, maxpool-112-b8, maxpool-112-fb-b8\n"
    "  --winograd       the option allow_winograd: 3x3 convolutions of f32 may take fewer products, with other bits\n"
    "  --seconds S      measure for about so long (4)\n"
    "  --steps N        N steps without measuring, for profilers\n"
    "  --first N        of the first N steps, and of what comes before them, the time, page faults and the most memory so far\n"
    "  --inside N       what looking inside costs: N steps in turn with everything off, traced, with first_bad, with positions;\n"
    "                   the processor's time of one thread\n"
    "  --metrics        the library's counters at the end\n"
    "  --json           one JSON array instead of lines\n"
    "  --quick          one second\n"
    "  --help           this\n";

class Job {
 public:
  Job(weft_context* ctx, const Workload& workload, weft_dtype dtype, bool channels_first)
      : ctx_(ctx), workload_(workload), net_(ctx, dtype, channels_first || workload.channels_first) {}
  ~Job() { weft_optimizer_release(optimizer_); }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  double gflop() const { return net_.gflop() * (workload_.does == Does::kInfer ? 1 : workload_.passes); }

  // Parameters, inputs and the optimizer, which programs have before their first step.
  void Prepare() {
    wf_scope* const s = wf_begin(ctx_);
    net_.Begin(s);
    workload_.network(net_);
    Must(wf_end(s));
    if (workload_.does != Does::kInfer && workload_.does != Does::kGradients) MakeOptimizer();
  }

  // One step, to its end; returns the first number of what it gave.
  double Run() {
    wf_scope* const s = wf_begin(ctx_);
    net_.Begin(s);
    std::vector<Tensor> shown = {workload_.network(net_)};
    if (workload_.does != Does::kInfer) Train(s, &shown);
    for (Tensor& tensor : shown) tensor = wf_keep(s, tensor);
    Must(wf_end(s));
    weft_event* done = nullptr;
    Must(weft_sync(ctx_, nullptr, &done));
    Must(weft_event_wait(done, -1));
    weft_event_release(done);
    const double first = First(shown[0]);
    for (Tensor tensor : shown) weft_tensor_release(tensor);
    return first;
  }

 private:
  void Train(wf_scope* s, std::vector<Tensor>* shown) {
    const std::vector<Tensor>& parameters = net_.parameters();
    std::vector<Tensor> gradients = net_.inputs();
    if (workload_.does != Does::kUpdate) {
      gradients.resize(parameters.size());
      wf_grad(s, (*shown)[0], parameters.data(), parameters.size(), gradients.data());
    }
    if (workload_.does == Does::kGradients) {
      *shown = gradients;
      return;
    }
    MakeOptimizer();
    wf_try(s, weft_optimizer_step(optimizer_, gradients.data(), gradients.size(), 1e-3));
  }

  void MakeOptimizer() {
    if (optimizer_ != nullptr) return;
    const std::vector<Tensor>& parameters = net_.parameters();
    if (workload_.does == Does::kMomentum) {
      weft_sgd_options sgd = WEFT_SGD_OPTIONS_INIT;
      sgd.momentum = 0.9;
      Must(weft_sgd_create(ctx_, parameters.data(), parameters.size(), &sgd, &optimizer_));
    } else {
      Must(weft_adamw_create(ctx_, parameters.data(), parameters.size(), nullptr, &optimizer_));
    }
  }

  static double First(Tensor tensor) {
    int64_t count = 0;
    Must(weft_tensor_count(tensor, &count));
    double value = 0;
    if (count == 1) Must(weft_tensor_item_f64(tensor, &value));
    return value;
  }

  weft_context* ctx_;
  const Workload& workload_;
  Net net_;
  weft_optimizer* optimizer_ = nullptr;
};

// GB/s of copying what no cache holds, counted both ways: on all cores at once, the best of three.
double CopyBandwidth(int threads) {
  constexpr size_t kBytes = size_t{256} << 20;
  std::vector<char> from(kBytes, 1), to(kBytes, 2);
  double best = 0;
  for (int round = 0; round < 3; ++round) {
    const bench::Clock::time_point start = bench::Clock::now();
    std::vector<std::thread> helpers;
    const size_t share = kBytes / static_cast<size_t>(threads);
    for (int t = 0; t < threads; ++t) {
      helpers.emplace_back([&, t] { std::memcpy(to.data() + share * static_cast<size_t>(t), from.data() + share * static_cast<size_t>(t), share); });
    }
    for (std::thread& helper : helpers) helper.join();
    best = std::max(best, 2e-9 * static_cast<double>(kBytes) / bench::Since(start));
  }
  return best;
}

rusage Usage() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage;
}

double PeakMegabytes() { return static_cast<double>(Usage().ru_maxrss) / 1024; }

// A row for what comes before the first step, and one for each of the first steps. The times of a program whose memory the
// system has to clear first: page faults say how much of it, system time how long.
void First(const std::string& name, int steps, const bench::Options& options, Job& job) {
  const auto system = [](const rusage& u) { return static_cast<double>(u.ru_stime.tv_sec) + 1e-6 * static_cast<double>(u.ru_stime.tv_usec); };
  std::vector<bench::Row> rows;
  for (int step = 0; step <= steps; ++step) {
    const rusage before = Usage();
    const bench::Clock::time_point start = bench::Clock::now();
    step == 0 ? job.Prepare() : void(job.Run());
    const double seconds = bench::Since(start);
    const rusage after = Usage();
    const std::string what = name + ", " + (step == 0 ? "before" : "step " + std::to_string(step));
    rows.push_back({what, seconds, "s", 0, 0, {}});
    rows.push_back({what + ", system", system(after) - system(before), "s", 0, 0, {}});
    rows.push_back({what + ", page faults", static_cast<double>(after.ru_minflt - before.ru_minflt), "", 0, 0, {}});
    rows.push_back({what + ", peak memory", static_cast<double>(after.ru_maxrss) / 1024, "MB", 0, 0, {}});
  }
  bench::Print(rows, options);
}

// --- What looking inside costs ----------------------------------------------------------------------------------------------

weft_context* ContextWith(const char* option, const char* value) {
  const weft_setting settings[] = {{"threads", WEFT_STRLEN, "1", WEFT_STRLEN}, {option, WEFT_STRLEN, value, WEFT_STRLEN}};
  weft_context_options context_options = WEFT_CONTEXT_OPTIONS_INIT;
  context_options.settings = settings;
  context_options.setting_count = std::size(settings);
  weft_context* ctx = nullptr;
  Must(weft_context_create(&context_options, &ctx));
  return ctx;
}

// Bytes of the gzipped file for each span of the context's trace.
double BytesOfSpan(weft_context* ctx) {
  const std::filesystem::path file = std::filesystem::temp_directory_path() / ("workloads-" + std::to_string(getpid()) + ".json.gz");
  weft_blob* report = nullptr;
  Must(weft_trace_report(ctx, WEFT_TRACE_REPORT_JSON, &report));
  const char* const spans = std::strstr(static_cast<const char*>(weft_blob_data(report)), "\"spans\": ");
  const double count = spans == nullptr ? 0 : std::atof(spans + std::strlen("\"spans\": "));
  weft_blob_release(report);
  Must(weft_trace_write(ctx, file.c_str(), WEFT_STRLEN, WEFT_TRACE_CHROME));
  const auto bytes = static_cast<double>(std::filesystem::file_size(file));
  std::filesystem::remove(file);
  return count > 0 ? bytes / count : 0;
}

// Ratios of steps that came one after the other, of the processor's time. Others on the machine count for little then.
int Inside(const Workload& workload, int rounds, const bench::Options& options) {
  struct Kind {
    const char *option, *value, *what;
    std::vector<double> ratios = {};
  };
  Kind kinds[] = {{"positions", "off", "everything off"},
                  {"positions", "off", "the same again"},
                  {"trace_bytes", "1048576", "traced"},
                  {"first_bad", "any", "first_bad=any"},
                  {"positions", "call", "positions=call"}};
  constexpr size_t kTraced = 2;
  std::vector<weft_context*> contexts;
  std::vector<std::unique_ptr<Job>> jobs;
  for (const Kind& kind : kinds) {
    contexts.push_back(ContextWith(kind.option, kind.value));
    jobs.push_back(std::make_unique<Job>(contexts.back(), workload, WEFT_F32, false));
    for (int i = 0; i < 3; ++i) jobs.back()->Run();
  }
  const auto took = [&](size_t i) {
    timespec start = {}, end = {};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &start);
    jobs[i]->Run();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    return static_cast<double>(end.tv_sec - start.tv_sec) + 1e-9 * static_cast<double>(end.tv_nsec - start.tv_nsec);
  };
  std::vector<double> plain;
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < std::size(kinds); ++i) {
      if (i == kTraced) Must(weft_trace_start(contexts[i]));
      const double before = took(0), seconds = i == 0 ? before : took(i), behind = i == 0 ? before : took(0);
      if (i == kTraced) Must(weft_trace_stop(contexts[i]));
      plain.push_back(before);
      kinds[i].ratios.push_back(2 * seconds / (before + behind));
    }
  }
  std::vector<bench::Row> rows = {{std::string(workload.name) + ", " + kinds[0].what, 1e3 * bench::Median(plain), "ms", 0, 0, {}}};
  for (size_t i = 1; i < std::size(kinds); ++i)
    rows.push_back({std::string(workload.name) + ", " + kinds[i].what + ", of that", bench::Median(kinds[i].ratios), "times", 0, 0, {}});
  Must(weft_trace_start(contexts[kTraced]));
  for (int round = 0; round < rounds; ++round) jobs[kTraced]->Run();
  Must(weft_trace_stop(contexts[kTraced]));
  rows.push_back({std::string(workload.name) + ", a span of " + std::to_string(rounds) + " traced steps, gzipped", BytesOfSpan(contexts[kTraced]), "bytes", 0, 0, {}});
  jobs.clear();
  for (weft_context* const ctx : contexts) weft_context_release(ctx);
  bench::Print(rows, options);
  return 0;
}

int List() {
  for (const Workload& workload : workloads::All()) {
    std::printf("%s\t%s\t%s\n", workload.name, workload.in_bf16 ? "f32,bf16" : "f32", workload.text);
  }
  return 0;
}

// The first step compiles, and its inputs are there; memory is that of the process. Peers' figures are taken the same way.
int Measure(const Workload& workload, bool bf16, double seconds, const bench::Options& options, Job& job) {
  const double peak = bench::Peak(options.threads);
  job.Prepare();
  bench::Clock::time_point start = bench::Clock::now();
  job.Run();
  const double first = bench::Since(start);
  const bench::Sample sample = bench::Measure(options.threads, [&] { job.Run(); }, 1000, seconds, /*crowded=*/true);
  const double memory = PeakMegabytes();  // before the probe of bandwidth takes its own
  const double bandwidth = workload.gbytes > 0 ? CopyBandwidth(options.threads) : 0;
  // What bf16 halves: all bytes but an optimizer's.
  const double gbytes = workload.gbytes / (bf16 ? 2 : 1);
  const double floor = 1e3 * std::max(job.gflop() / sample.probe, bandwidth > 0 ? gbytes / bandwidth : 0);
  const std::string name = std::string(workload.name) + (bf16 ? " bf16" : "");
  std::vector<bench::Row> rows = {{"probe", sample.probe, "GF/s", peak, sample.probe / peak, {}}};
  if (!sample.Void()) {
    for (const auto& [what, ms] : {std::pair(name, sample.seconds * 1e3), std::pair(name + ", best", sample.best * 1e3)}) {
      rows.push_back({what, ms, "ms", floor, floor > 0 ? ms / floor : 0, {}});
    }
  }
  rows.push_back({name + ", products", job.gflop(), "GFLOP", 0, 0, {}});
  rows.push_back({name + ", first step", first, "s", 0, 0, {}});
  rows.push_back({name + ", peak memory", memory, "MB", 0, 0, {}});
  bench::Print(rows, options);
  if (sample.Void()) std::fprintf(stderr, "workloads: %s: no undisturbed sample (%d dropped)\n", workload.name, sample.dropped);
  return sample.Void() ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options = bench::Parse(argc, argv);
  std::string only;
  bool list = false, bf16 = false, channels_first = false, winograd = false, metrics = false, wrong = false;
  int steps = 0, first_steps = 0, inside = 0;
  double seconds = options.quick ? 1 : 4;
  for (size_t i = 0; i < options.rest.size(); ++i) {
    const std::string& a = options.rest[i];
    const bool has_value = i + 1 < options.rest.size();
    if (a == "--only" && has_value) {
      only = options.rest[++i];
    } else if (a == "--seconds" && has_value) {
      seconds = std::atof(options.rest[++i].c_str());
      wrong = wrong || !(seconds > 0);
    } else if (a == "--steps" && has_value) {
      steps = bench::Count(options.rest[++i]);
      wrong = wrong || steps == 0;
    } else if (a == "--first" && has_value) {
      first_steps = bench::Count(options.rest[++i]);
      wrong = wrong || first_steps == 0;
    } else if (a == "--inside" && has_value) {
      inside = bench::Count(options.rest[++i]);
      wrong = wrong || inside == 0;
    } else if (a == "--list") {
      list = true;
    } else if (a == "--bf16") {
      bf16 = true;
    } else if (a == "--channels-first") {
      channels_first = true;
    } else if (a == "--winograd") {
      winograd = true;
    } else if (a == "--metrics") {
      metrics = true;
    } else {
      wrong = true;
    }
  }
  const Workload* found = nullptr;
  for (const auto& rows : {workloads::All(), workloads::Layers()}) {
    for (const Workload& row : rows) found = only == row.name ? &row : found;
  }
  if (list && !wrong) return List();
  wrong = wrong || (channels_first && found != nullptr && !found->images);
  if (options.help || wrong || found == nullptr) {
    std::fputs(kHelp, options.help ? stdout : stderr);
    if (!wrong && !options.help && !only.empty()) std::fprintf(stderr, "workloads: there is no workload '%s'\n", only.c_str());
    return options.help ? 0 : 2;
  }
  if (inside > 0) return Inside(*found, inside, options);
  weft_context* ctx = nullptr;
  const weft_setting allows = {"allow_winograd", WEFT_STRLEN, "1", WEFT_STRLEN};
  weft_context_options context_options = WEFT_CONTEXT_OPTIONS_INIT;
  context_options.settings = &allows;
  context_options.setting_count = winograd ? 1 : 0;
  Must(weft_context_create(&context_options, &ctx));
  int rc = 0;
  {
    Job job(ctx, *found, bf16 ? WEFT_BF16 : WEFT_F32, channels_first);
    if (steps > 0) {
      double first = 0;
      for (int i = 0; i < steps; ++i) first = job.Run();
      std::printf("%s: %.6g\n", found->name, first);
    } else if (first_steps > 0) {
      First(std::string(found->name) + (bf16 ? " bf16" : ""), first_steps, options, job);
    } else {
      rc = Measure(*found, bf16, seconds, options, job);
    }
  }
  if (metrics) {
    weft_blob* report = nullptr;
    Must(weft_metrics_report(ctx, &report));
    std::fwrite(weft_blob_data(report), 1, weft_blob_size(report), stderr);
    weft_blob_release(report);
  }
  weft_context_release(ctx);
  return rc;
}
