// Training steps of two networks through the exported functions, against what the machine's multipliers allow: an MLP
// 784-512-256-10 with plain SGD, and a CNN (3x3 convolutions 1-32-64, max-pool 2, 9216-128-10) with momentum, batches of
// 64. Optimizer included, distinct batches, the loss read every 50 steps.
#include <cmath>
#include <cstdlib>
#include <memory>

#include "bench_util.h"
#include "weft.h"
#include "weft_fluent.h"

namespace {

constexpr int kBatch = 64, kBatches = 16, kReadEvery = 50;

constexpr char kHelp[] =
    "usage: train_step [options]\n"
    "  --json           one JSON array instead of lines\n"
    "  --quick          few samples\n"
    "  --peers          PyTorch and JAX beside it, installed into a throw-away virtual environment\n"
    "  --peers-in DIR   the same in a virtual environment that stays (made if it is not there)\n"
    "  --only NAME      mlp or cnn\n"
    "  --bf16           parameters and images in bf16 (optimizer states stay f32); without peers\n"
    "  --steps N        N steps without measuring, for profilers\n"
    "  --metrics        the library's counters at the end\n"
    "  --help           this\n";

void Must(weft_error* error) {
  if (error == nullptr) return;
  std::fprintf(stderr, "train_step: %s\n", weft_error_message(error, nullptr));
  std::exit(1);
}

uint64_t random_state = 1;
double Uniform() {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return static_cast<double>(random_state >> 40) * 0x1p-24;
}

struct Shape {
  int64_t dims[4];
  size_t rank;
  int64_t fan_in;  // 0: zeros
};

class Network {
 public:
  Network(weft_context* ctx, bool cnn, weft_dtype dtype) : ctx_(ctx), cnn_(cnn), dtype_(dtype) {
    static const Shape kMlp[] = {{{784, 512}, 2, 784}, {{512}, 1, 0}, {{512, 256}, 2, 512},
                                 {{256}, 1, 0},        {{256, 10}, 2, 256}, {{10}, 1, 0}};
    static const Shape kCnn[] = {{{3, 3, 1, 32}, 4, 9},    {{32}, 1, 0},  {{3, 3, 32, 64}, 4, 288}, {{64}, 1, 0},
                                 {{9216, 128}, 2, 9216},   {{128}, 1, 0}, {{128, 10}, 2, 128},      {{10}, 1, 0}};
    count_ = cnn ? 8 : 6;
    for (size_t i = 0; i < count_; ++i) p_[i] = Parameter(cnn ? kCnn[i] : kMlp[i]);
    const int64_t flat[] = {kBatch, 784}, image[] = {kBatch, 28, 28, 1}, rows[] = {kBatch};
    for (int b = 0; b < kBatches; ++b) {
      std::vector<float> x(kBatch * 784);
      std::vector<int32_t> y(kBatch);
      // Labels can be learned, so that a wrong gradient shows as a loss that does not fall.
      for (int n = 0; n < kBatch; ++n) {
        y[n] = static_cast<int32_t>(Uniform() * 10);
        for (int i = 0; i < 784; ++i) x[n * 784 + i] = static_cast<float>(Uniform() - 0.5 + (i / 78 == y[n] ? 0.5 : 0.0));
      }
      x_[b] = FromFloats(cnn ? image : flat, cnn ? 4 : 2, x);
      Must(weft_tensor_from_host(ctx, nullptr, WEFT_I32, rows, 1, y.data(), y.size() * 4, &y_[b]));
    }
    weft_sgd_options sgd = WEFT_SGD_OPTIONS_INIT;
    if (cnn) sgd.momentum = 0.9;
    Must(weft_sgd_create(ctx, p_, count_, &sgd, &optimizer_));
  }
  ~Network() {
    for (size_t i = 0; i < count_; ++i) weft_tensor_release(p_[i]);
    for (int b = 0; b < kBatches; ++b) {
      weft_tensor_release(x_[b]);
      weft_tensor_release(y_[b]);
    }
    weft_optimizer_release(optimizer_);
  }
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // `steps` steps; returns the loss of the last, which is read.
  double Run(int steps) {
    double loss = 0;
    for (int i = 0; i < steps; ++i) Step(i + 1 == steps ? &loss : nullptr);
    return loss;
  }

 private:
  weft_tensor* FromFloats(const int64_t* dims, size_t rank, const std::vector<float>& values) {
    weft_tensor *wide = nullptr, *t = nullptr;
    Must(weft_tensor_from_host(ctx_, nullptr, WEFT_F32, dims, rank, values.data(), values.size() * 4, &wide));
    if (dtype_ == WEFT_F32) return wide;
    Must(weft_convert(ctx_, wide, dtype_, &t));
    Must(weft_eval(ctx_, &t, 1, nullptr));
    weft_tensor_release(wide);
    return t;
  }

  weft_tensor* Parameter(const Shape& shape) {
    size_t n = 1;
    for (size_t d = 0; d < shape.rank; ++d) n *= static_cast<size_t>(shape.dims[d]);
    std::vector<float> values(n);
    if (shape.fan_in > 0) {
      const double bound = std::sqrt(6.0 / static_cast<double>(shape.fan_in));
      for (float& v : values) v = static_cast<float>((2 * Uniform() - 1) * bound);
    }
    weft_tensor* t = FromFloats(shape.dims, shape.rank, values);
    Must(weft_tensor_require_grad(t, 1));
    return t;
  }

  weft_tensor* Mlp(wf_scope* s, weft_tensor* x) {
    weft_tensor* h = wf_relu(s, wf_add(s, wf_matmul(s, x, p_[0]), p_[1]));
    h = wf_relu(s, wf_add(s, wf_matmul(s, h, p_[2]), p_[3]));
    return wf_add(s, wf_matmul(s, h, p_[4]), p_[5]);
  }

  weft_tensor* Cnn(wf_scope* s, weft_tensor* x) {
    static const int64_t kPool[] = {2, 2}, kFlat[] = {kBatch, 9216};
    weft_tensor* h = wf_relu(s, wf_add(s, wf_conv(s, x, p_[0]), p_[1]));
    h = wf_relu(s, wf_add(s, wf_conv(s, h, p_[2]), p_[3]));
    h = wf_reshape(s, wf_max_pool(s, h, kPool, 2), kFlat, 2);
    h = wf_relu(s, wf_add(s, wf_matmul(s, h, p_[4]), p_[5]));
    return wf_add(s, wf_matmul(s, h, p_[6]), p_[7]);
  }

  void Step(double* loss) {
    weft_tensor* gradients[8];
    wf_scope* s = wf_begin(ctx_);
    weft_tensor* x = x_[position_ % kBatches];
    weft_tensor* l = wf_cross_entropy(s, cnn_ ? Cnn(s, x) : Mlp(s, x), y_[position_ % kBatches]);
    ++position_;
    wf_grad(s, l, p_, count_, gradients);
    wf_try(s, weft_optimizer_step(optimizer_, gradients, count_, 0.01));
    l = wf_keep(s, l);
    Must(wf_end(s));
    Must(weft_sync(ctx_, nullptr, nullptr));
    if (loss != nullptr) Must(weft_tensor_item_f64(l, loss));
    weft_tensor_release(l);
  }

  weft_context* ctx_;
  bool cnn_;
  weft_dtype dtype_;
  size_t count_ = 0;
  weft_tensor* p_[8] = {};
  weft_tensor* x_[kBatches] = {};
  weft_tensor* y_[kBatches] = {};
  weft_optimizer* optimizer_ = nullptr;
  int position_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options = bench::Parse(argc, argv);
  bool peers = false, metrics = false, bf16 = false;
  std::string folder, only;
  int plain_steps = 0;
  bool wrong = false;
  for (size_t i = 0; i < options.rest.size(); ++i) {
    const std::string& a = options.rest[i];
    const bool has_value = i + 1 < options.rest.size();
    if (a == "--peers") {
      peers = true;
    } else if (a == "--peers-in" && has_value) {
      peers = true;
      folder = options.rest[++i];
    } else if (a == "--only" && has_value) {
      only = options.rest[++i];
      wrong = wrong || (only != "mlp" && only != "cnn");
    } else if (a == "--steps" && has_value) {
      plain_steps = bench::Count(options.rest[++i]);
      wrong = wrong || plain_steps == 0;
    } else if (a == "--bf16") {
      bf16 = true;
    } else if (a == "--metrics") {
      metrics = true;
    } else {
      wrong = true;
    }
  }
  if (options.help || wrong || (bf16 && peers)) {
    std::fputs(kHelp, options.help ? stdout : stderr);
    return options.help ? 0 : 2;
  }
  weft_context* ctx = nullptr;
  Must(weft_context_create(nullptr, &ctx));

  struct Workload {
    const char* name;
    bool cnn;
    double gflop;
  };
  int rc = 0;
  std::vector<bench::Row> rows;
  const double peak = bench::Peak(options.threads);
  const double first_probe = bench::BestProbe(options.threads);
  if (plain_steps == 0) rows.push_back({"probe", first_probe, "GF/s", peak, first_probe / peak, {}});
  if (first_probe < 0.85 * peak) {
    std::fprintf(stderr, "train_step: the probe reaches %.0f of %.0f GF/s: the run is void\n", first_probe, peak);
    rc = 1;
  }
  struct Run {
    Workload workload;
    std::unique_ptr<Network> network;
    double first_loss = 0;
    std::vector<double> times;  // of a step, ms
  };
  std::vector<Run> runs;
  for (const Workload& w : {Workload{"mlp", false, 0.154}, Workload{"cnn", true, 4.58}}) {
    if (!only.empty() && only != w.name) continue;
    runs.push_back({w, std::make_unique<Network>(ctx, w.cnn, bf16 ? WEFT_BF16 : WEFT_F32), 0, {}});
    if (plain_steps > 0) {
      std::printf("%s: loss %.4f\n", w.name, runs.back().network->Run(plain_steps));
    } else {
      runs.back().first_loss = runs.back().network->Run(2);
    }
  }
  const auto measure = [&] {
    for (Run& run : runs) {
      // A sample is kReadEvery steps with one read at their end; of the CNN ten, or a sample would outlast the phases of
      // a shared machine. Its read is then counted five times too often, against us.
      const int steps = run.workload.cnn ? 10 : kReadEvery;
      const bench::Sample sample = bench::Measure(options.threads, [&] { run.network->Run(steps); }, options.quick ? 5 : 21,
                                                  options.quick ? 3.0 : 10.0, /*crowded=*/true);
      for (double seconds : sample.times) run.times.push_back(seconds / steps * 1e3);
      if (sample.Void()) std::fprintf(stderr, "train_step: %s: no undisturbed sample (%d dropped)\n", run.workload.name, sample.dropped);
    }
  };
  if (plain_steps == 0) {
    measure();
    std::map<std::string, bench::PeerTimes> beside;
    if (peers) {
      if (!bench::ReadPeers("", folder, options.quick, &beside)) rc = 1;
      measure();  // once more: memory is slower in some minutes than in others, on a machine that is shared
    }
    for (Run& run : runs) {
      const std::string name = std::string(run.workload.name) + (bf16 ? "-train bf16 b64" : "-train b64");
      const double loss = run.network->Run(1);
      if (!(loss < run.first_loss)) {
        std::fprintf(stderr, "train_step: %s: the loss went from %.4f to %.4f\n", run.workload.name, run.first_loss, loss);
        rc = 1;
      }
      if (run.times.empty()) {
        rc = 1;
        continue;
      }
      std::sort(run.times.begin(), run.times.end());
      const double best = run.times.front(), median = run.times[run.times.size() / 2];
      const double floor = run.workload.gflop / bench::BestProbe(options.threads) * 1e3;
      // The probe multiplies f32: of bf16 up to sixteen products (AMX) take the time of one.
      if (floor > 1.02 * best * (bf16 ? 16 : 1)) {
        std::fprintf(stderr, "train_step: %s passes the probe: the run is void\n", run.workload.name);
        rc = 1;
      }
      const bench::PeerTimes& p = beside[run.workload.name];
      rows.push_back({name, median, "ms", floor, median / floor, p.median});
      rows.push_back({name + ", best", best, "ms", floor, best / floor, p.best});
    }
  }
  if (plain_steps == 0) bench::Print(rows, options);
  if (metrics) {
    weft_blob* report = nullptr;
    Must(weft_metrics_report(ctx, &report));
    std::fwrite(weft_blob_data(report), 1, weft_blob_size(report), stderr);
    weft_blob_release(report);
  }
  weft_context_release(ctx);
  return rc;
}
