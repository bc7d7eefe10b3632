// Loops and calls through the exported functions: an LSTM by scan, forwards and with its gradient (100 steps of 32 × 256); a
// scan of 614 steps over 60 scalars with its gradient; and transformers of 2 and 96 equal layers that are calls of one function,
// inference and gradients, of which the time is that of compiling.
#include <cmath>
#include <functional>

#include "bench_util.h"
#include "weft.h"
#include "weft_fluent.h"

namespace {

constexpr char kHelp[] =
    "usage: control_flow [options]\n"
    "  --json           one JSON array instead of lines\n"
    "  --quick          few samples\n"
    "  --peers          JAX and PyTorch beside it, installed into a throw-away virtual environment\n"
    "  --peers-in DIR   the same in a virtual environment that stays (made if it is not there)\n"
    "  --only NAME      lstm, scalars or layers\n"
    "  --help           this\n";

void Must(weft_error* error) {
  if (error == nullptr) return;
  std::fprintf(stderr, "control_flow: %s\n", weft_error_message(error, nullptr));
  std::exit(1);
}

using Tensors = std::vector<weft_tensor*>;
void Release(Tensors& tensors) {
  for (weft_tensor* tensor : tensors) weft_tensor_release(tensor);
  tensors.clear();
}

// A function out of one that records the body in a scope of it: parameters in, results out.
using Body = std::function<Tensors(wf_scope* s, weft_tensor* const* in)>;
weft_function* Trace(weft_context* ctx, const char* name, const std::vector<weft_tensor_info>& inputs, size_t results, Body body) {
  weft_function* f = nullptr;
  const auto trace = [](void* data, weft_context* inside, weft_tensor* const* in, size_t, weft_tensor** out, size_t,
                        size_t* out_count) -> weft_error* {
    wf_scope* const s = wf_begin(inside);
    *out_count = 0;
    for (weft_tensor* result : (*static_cast<Body*>(data))(s, in)) out[(*out_count)++] = wf_keep(s, result);
    return wf_end(s);
  };
  Must(weft_function_trace(ctx, name, WEFT_STRLEN, inputs.data(), inputs.size(), trace, &body, results, &f));
  return f;
}

weft_tensor_info Info(std::initializer_list<int64_t> dims) {
  weft_tensor_info info = {};
  info.dtype = WEFT_F32;
  for (const int64_t dim : dims) info.dims[info.rank++] = dim;
  return info;
}

weft_tensor* Random(weft_context* ctx, std::initializer_list<int64_t> dims, double scale, bool wanted) {
  static uint64_t state = 1;
  size_t count = 1;
  for (const int64_t dim : dims) count *= static_cast<size_t>(dim);
  std::vector<float> values(count);
  for (float& value : values) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    value = static_cast<float>((static_cast<double>(state >> 40) * 0x1p-23 - 1) * scale);
  }
  weft_tensor* t = nullptr;
  Must(weft_tensor_from_host(ctx, nullptr, WEFT_F32, dims.begin(), dims.size(), values.data(), count * 4, &t));
  if (wanted) Must(weft_tensor_require_grad(t, 1));
  return t;
}

// Computes these and waits.
void Compute(weft_context* ctx, Tensors& tensors) {
  weft_event* done = nullptr;
  Must(weft_eval(ctx, tensors.data(), tensors.size(), &done));
  Must(weft_event_wait(done, -1));
  weft_event_release(done);
  Release(tensors);
}

// --- LSTM ------------------------------------------------------------------------------------------------------------------

class Lstm {
 public:
  static constexpr int64_t kSteps = 100, kRows = 32, kWidth = 256;
  explicit Lstm(weft_context* ctx) : ctx_(ctx) {
    w_ = {Random(ctx, {kWidth, 4 * kWidth}, 0.1, true), Random(ctx, {kWidth, 4 * kWidth}, 0.1, true), Random(ctx, {4 * kWidth}, 0.1, true)};
    x_ = Random(ctx, {kSteps, kRows, kWidth}, 1, false);
    const weft_tensor_info state = Info({kRows, kWidth});
    cell_ = Trace(ctx, "cell", {state, state, state}, 3, [this](wf_scope* s, weft_tensor* const* in) {
      weft_tensor* gates[4];
      weft_tensor* const all = wf_add(s, wf_add(s, wf_matmul(s, in[2], w_[0]), wf_matmul(s, in[0], w_[1])), w_[2]);
      wf_chunk(s, all, 4, -1, gates, 4);
      weft_tensor* const c = wf_add(s, wf_mul(s, wf_sigmoid(s, gates[1]), in[1]), wf_mul(s, wf_sigmoid(s, gates[0]), wf_tanh(s, gates[2])));
      weft_tensor* const h = wf_mul(s, wf_sigmoid(s, gates[3]), wf_tanh(s, c));
      return Tensors{h, c, wf_copy(s, h)};
    });
  }
  ~Lstm() {
    weft_function_release(cell_);
    weft_tensor_release(x_);
    Release(w_);
  }
  Lstm(const Lstm&) = delete;
  Lstm& operator=(const Lstm&) = delete;

  void Run(bool gradient) {
    wf_scope* const s = wf_begin(ctx_);
    weft_tensor* out[3];
    weft_tensor* const zeros = wf_full(s, WF_INTS(kRows, kWidth), 0);
    wf_scan(s, cell_, WF_TENSORS(zeros, zeros), WF_TENSORS(x_), out, 3);
    Tensors wanted;
    if (gradient) {
      weft_tensor* grads[3];
      wf_grad(s, wf_sum(s, out[2]), w_.data(), 3, grads);
      for (weft_tensor* grad : grads) wanted.push_back(wf_keep(s, grad));
    } else {
      wanted.push_back(wf_keep(s, out[2]));
    }
    Must(wf_end(s));
    Compute(ctx_, wanted);
  }

 private:
  weft_context* ctx_;
  Tensors w_;
  weft_tensor* x_;
  weft_function* cell_;
};

// --- 60 scalars ------------------------------------------------------------------------------------------------------------

class Scalars {
 public:
  static constexpr size_t kCount = 60;
  explicit Scalars(weft_context* ctx) : ctx_(ctx) {
    for (size_t i = 0; i < kCount; ++i) {
      v_.push_back(nullptr);
      Must(weft_tensor_from_f64(ctx, WEFT_F32, static_cast<double>(i) * 0.01, &v_.back()));
      Must(weft_tensor_require_grad(v_.back(), 1));
    }
    body_ = Trace(ctx, "body", std::vector<weft_tensor_info>(kCount, Info({})), kCount, [](wf_scope* s, weft_tensor* const* in) {
      Tensors out;
      for (size_t i = 0; i < kCount; ++i) {
        out.push_back(wf_add(s, wf_mul_n(s, wf_sin(s, in[i]), 0.5), wf_mul_n(s, in[(i + 1) % kCount], 0.5)));
      }
      return out;
    });
  }
  ~Scalars() {
    weft_function_release(body_);
    Release(v_);
  }
  Scalars(const Scalars&) = delete;
  Scalars& operator=(const Scalars&) = delete;

  void Run() {
    wf_scope* const s = wf_begin(ctx_);
    weft_tensor *out[kCount], *grads[kCount];
    wf_scan(s, body_, v_.data(), kCount, nullptr, 0, out, kCount, 614);
    weft_tensor* sum = out[0];
    for (size_t i = 1; i < kCount; ++i) sum = wf_add(s, sum, out[i]);
    wf_grad(s, sum, v_.data(), kCount, grads);
    Tensors wanted;
    for (weft_tensor* grad : grads) wanted.push_back(wf_keep(s, grad));
    Must(wf_end(s));
    Compute(ctx_, wanted);
  }

 private:
  weft_context* ctx_;
  Tensors v_;
  weft_function* body_;
};

// --- Layers ----------------------------------------------------------------------------------------------------------------

// Milliseconds until a transformer of so many layers is compiled, in a context that knows nothing.
double CompileLayers(int layers, bool gradient) {
  constexpr int64_t kWidth = 64, kHeads = 4, kTokens = 16, kRows = 2;
  const weft_setting off = {"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  options.settings = &off;
  options.setting_count = 1;
  weft_context* ctx = nullptr;
  Must(weft_context_create(&options, &ctx));
  const std::vector<weft_tensor_info> types = {Info({kRows, kTokens, kWidth}), Info({kWidth}), Info({kWidth}),
                                               Info({kWidth, 3 * kWidth}),     Info({kWidth, kWidth}), Info({kWidth}), Info({kWidth}),
                                               Info({kWidth, 4 * kWidth}),     Info({4 * kWidth}), Info({4 * kWidth, kWidth}), Info({kWidth})};
  weft_function* const layer = Trace(ctx, "layer", types, 1, [](wf_scope* s, weft_tensor* const* in) {
    weft_tensor* qkv[3];
    weft_tensor* h = wf_layer_norm(s, in[0], in[1], in[2]);
    wf_chunk(s, wf_matmul(s, h, in[3]), 3, -1, qkv, 3);
    for (weft_tensor*& part : qkv) {
      part = wf_transpose(s, wf_reshape(s, part, WF_INTS(kRows, kTokens, kHeads, kWidth / kHeads)), WF_INTS(0, 2, 1, 3));
    }
    h = wf_transpose(s, wf_scaled_dot_product_attention(s, qkv[0], qkv[1], qkv[2], nullptr), WF_INTS(0, 2, 1, 3));
    weft_tensor* const x = wf_add(s, in[0], wf_matmul(s, wf_reshape(s, h, WF_INTS(kRows, kTokens, kWidth)), in[4]));
    h = wf_gelu(s, wf_add(s, wf_matmul(s, wf_layer_norm(s, x, in[5], in[6]), in[7]), in[8]));
    return Tensors{wf_add(s, x, wf_add(s, wf_matmul(s, h, in[9]), in[10]))};
  });
  Tensors weights;
  for (int l = 0; l < layers; ++l) {
    for (size_t i = 1; i < types.size(); ++i) {
      const weft_tensor_info& t = types[i];
      weights.push_back(t.rank == 1 ? Random(ctx, {t.dims[0]}, 0.1, true) : Random(ctx, {t.dims[0], t.dims[1]}, 0.1, true));
    }
  }
  weft_tensor* const input = Random(ctx, {kRows, kTokens, kWidth}, 1, false);
  wf_scope* const s = wf_begin(ctx);
  weft_tensor* x = input;
  for (int l = 0; l < layers; ++l) {
    Tensors in = {x};
    const auto first = weights.begin() + static_cast<ptrdiff_t>(l * static_cast<int>(types.size() - 1));
    in.insert(in.end(), first, first + static_cast<ptrdiff_t>(types.size() - 1));
    x = wf_call(s, layer, in.data(), in.size());
  }
  Tensors wanted = {wf_mean(s, x)};
  if (gradient) {
    Tensors grads(weights.size());
    wf_grad(s, wanted[0], weights.data(), weights.size(), grads.data());
    wanted.insert(wanted.end(), grads.begin(), grads.end());
  }
  for (weft_tensor*& tensor : wanted) tensor = wf_keep(s, tensor);
  Must(wf_end(s));
  const bench::Clock::time_point start = bench::Clock::now();
  Must(weft_compile(ctx, nullptr, wanted.data(), wanted.size(), nullptr));
  const double seconds = bench::Since(start);
  Compute(ctx, wanted);  // it runs, too
  Release(weights);
  weft_tensor_release(input);
  weft_function_release(layer);
  weft_context_release(ctx);
  return seconds * 1e3;
}

double MedianCompile(int layers, bool gradient, int times) {
  std::vector<double> all;
  for (int i = 0; i < times; ++i) all.push_back(CompileLayers(layers, gradient));
  return bench::Median(all);
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options = bench::Parse(argc, argv);
  bool peers = false, wrong = false;
  std::string folder, only;
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
      wrong = wrong || (only != "lstm" && only != "scalars" && only != "layers");
    } else {
      wrong = true;
    }
  }
  if (options.help || wrong) {
    std::fputs(kHelp, options.help ? stdout : stderr);
    return options.help ? 0 : 2;
  }
  weft_context* ctx = nullptr;
  Must(weft_context_create(nullptr, &ctx));
  int rc = 0;
  std::map<std::string, bench::PeerTimes> beside;
  if (peers && !bench::ReadPeers("--only control", folder, options.quick, &beside)) rc = 1;
  const double peak = bench::Peak(options.threads);
  const double probe = bench::BestProbe(options.threads);
  std::vector<bench::Row> rows = {{"probe", probe, "GF/s", peak, probe / peak, {}}};
  const auto measure = [&](const char* name, double gflop, const std::function<void()>& run) {
    const bench::Sample sample = bench::Measure(options.threads, run, options.quick ? 5 : 21, options.quick ? 3.0 : 10.0, /*crowded=*/true);
    if (sample.Void()) {
      std::fprintf(stderr, "control_flow: %s: no undisturbed sample (%d dropped)\n", name, sample.dropped);
      rc = 1;
      return;
    }
    const double ms = sample.seconds * 1e3, best = sample.best * 1e3, floor = gflop / sample.probe * 1e3;
    rows.push_back({name, ms, "ms", floor, floor > 0 ? ms / floor : 0, beside[name].median});
    rows.push_back({std::string(name) + ", best", best, "ms", floor, floor > 0 ? best / floor : 0, beside[name].best});
  };
  if (only.empty() || only == "lstm") {
    Lstm lstm(ctx);
    // Products of [32, 256] by [256, 1024], two a step, and three more for the gradient, which xs do not want.
    measure("lstm-forward", 3.36, [&] { lstm.Run(false); });
    measure("lstm-gradient", 2.5 * 3.36, [&] { lstm.Run(true); });
  }
  if (only.empty() || only == "scalars") {
    Scalars scalars(ctx);
    measure("scalars-gradient", 0, [&] { scalars.Run(); });
  }
  if (only.empty() || only == "layers") {
    for (const bool gradient : {false, true}) {
      const int times = options.quick ? 1 : 5;
      const double two = MedianCompile(2, gradient, times), many = MedianCompile(96, gradient, times);
      rows.push_back({gradient ? "layers-gradient, compile 96 of 2" : "layers-inference, compile 96 of 2", many, "ms", two, many / two, {}});
    }
  }
  bench::Print(rows, options);
  weft_context_release(ctx);
  return rc;
}
