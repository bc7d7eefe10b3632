// Rows and elements at computed places, beside PyTorch and JAX: what gathers, scatters and gradients of embeddings take through the
// exported functions.
#include <cmath>
#include <functional>

#include "bench_util.h"
#include "weft.h"
#include "weft_fluent.h"

namespace {

constexpr char kHelp[] =
    "usage: places [options]\n"
    "  --json           one JSON array instead of lines\n"
    "  --quick          few samples\n"
    "  --peers          JAX and PyTorch beside it, installed into a throw-away virtual environment\n"
    "  --peers-in DIR   the same in a virtual environment that stays (made if it is not there)\n"
    "  --only NAME      what begins so\n"
    "  --help           this\n";

void Must(weft_error* error) {
  if (error == nullptr) return;
  std::fprintf(stderr, "places: %s\n", weft_error_message(error, nullptr));
  std::exit(1);
}

using Tensors = std::vector<weft_tensor*>;
using Dims = std::vector<int64_t>;

uint32_t Next() {
  static uint64_t state = 1;
  state = state * 6364136223846793005u + 1442695040888963407u;
  return static_cast<uint32_t>(state >> 33);
}

class Bench {
 public:
  Bench(weft_context* ctx, const bench::Options& options, std::string only) : ctx_(ctx), options_(options), only_(std::move(only)) {}

  weft_tensor* Floats(const Dims& dims, weft_dtype dtype = WEFT_F32) {
    std::vector<float> values(CountOf(dims));
    for (float& value : values) value = static_cast<float>(Next()) * 0x1p-30f - 1;
    weft_tensor* wide = nullptr;
    Must(weft_tensor_from_host(ctx_, nullptr, WEFT_F32, dims.data(), dims.size(), values.data(), values.size() * 4, &wide));
    made_.push_back(wide);
    if (dtype == WEFT_F32) return wide;
    wf_scope* const s = wf_begin(ctx_);
    made_.push_back(wf_keep(s, wf_convert(s, wide, dtype)));
    Must(wf_end(s));
    return made_.back();
  }
  weft_tensor* Indices(const Dims& dims, int64_t below, bool sorted = false) {
    std::vector<int32_t> values(CountOf(dims));
    for (int32_t& value : values) value = static_cast<int32_t>(Next() % static_cast<uint64_t>(below));
    if (sorted) std::sort(values.begin(), values.end());
    weft_tensor* t = nullptr;
    Must(weft_tensor_from_host(ctx_, nullptr, WEFT_I32, dims.data(), dims.size(), values.data(), values.size() * 4, &t));
    made_.push_back(t);
    return t;
  }

  bool Wants(const std::string& name) const { return name.rfind(only_, 0) == 0; }
  // Measures what `record` records; inputs that were made since the row before are released. `trains`: all that is pending, parameters
  // too, is one program.
  void Add(const std::string& name, const std::function<Tensors(wf_scope*)>& record, bool trains = false) {
    const auto run = [&] {
      wf_scope* const s = wf_begin(ctx_);
      Tensors wanted = record(s);
      for (weft_tensor*& tensor : wanted) tensor = wf_keep(s, tensor);
      Must(wf_end(s));
      weft_event* done = nullptr;
      Must(trains ? weft_sync(ctx_, nullptr, &done) : weft_eval(ctx_, wanted.data(), wanted.size(), &done));
      Must(weft_event_wait(done, -1));
      weft_event_release(done);
      for (weft_tensor* tensor : wanted) weft_tensor_release(tensor);
    };
    const bench::Sample sample = bench::Measure(options_.threads, run, options_.quick ? 5 : 21, options_.quick ? 2.0 : 6.0, /*crowded=*/true);
    if (sample.Void()) {
      std::fprintf(stderr, "places: %s: no undisturbed sample (%d dropped)\n", name.c_str(), sample.dropped);
      failed_ = true;
    } else {
      Row(name, sample.best * 1e3, beside[name].best);
    }
    Forget();
  }
  void Forget() {
    for (weft_tensor* tensor : made_) weft_tensor_release(tensor);
    made_.clear();
  }

  weft_context* ctx() const { return ctx_; }
  bool failed() const { return failed_; }
  std::map<std::string, bench::PeerTimes> beside;
  std::vector<bench::Row> rows;

 private:
  static size_t CountOf(const Dims& dims) {
    size_t count = 1;
    for (const int64_t dim : dims) count *= static_cast<size_t>(dim);
    return count;
  }
  // Best against best. The floor is the best peer.
  void Row(const std::string& name, double ms, const std::map<std::string, double>& peers) {
    double least = 0;
    for (const auto& [peer, time] : peers) least = least == 0 ? time : std::min(least, time);
    rows.push_back({name, ms, "ms", least, least > 0 ? ms / least : 0, peers});
  }

  weft_context* ctx_;
  const bench::Options& options_;
  const std::string only_;
  Tensors made_;
  bool failed_ = false;
};

weft_tensor* ToRows(wf_scope* s, weft_tensor* x, weft_tensor* at, weft_tensor* rows, weft_scatter_reducer reducer) {
  return wf_scatter(s, x, at, rows, WF_INTS(1), WF_INTS(0), WF_INTS(0), 1, reducer);
}
weft_tensor* ToElements(wf_scope* s, weft_tensor* x, weft_tensor* at, weft_tensor* elements, weft_scatter_reducer reducer) {
  return wf_scatter(s, x, at, elements, nullptr, 0, WF_INTS(0), WF_INTS(0), 1, reducer);
}

constexpr int64_t kUpdates = 320'000, kRows = 20'000, kWidth = 64, kElements = 1'000'000;

void Scatters(Bench& b) {
  const auto rows = [&](const char* name, bool sorted, weft_dtype dtype, weft_scatter_reducer reducer) {
    if (!b.Wants(name)) return;
    weft_tensor *const updates = b.Floats({kUpdates, kWidth}, dtype), *const at = b.Indices({kUpdates}, kRows, sorted);
    weft_tensor* const x = b.Floats({kRows, kWidth}, dtype);
    b.Add(name, [&](wf_scope* s) { return Tensors{ToRows(s, x, at, updates, reducer)}; });
  };
  rows("add-rows", false, WEFT_F32, WEFT_SCATTER_REDUCER_SUM);
  rows("add-rows-sorted", true, WEFT_F32, WEFT_SCATTER_REDUCER_SUM);
  rows("add-rows-bf16", false, WEFT_BF16, WEFT_SCATTER_REDUCER_SUM);
  rows("max-rows", false, WEFT_F32, WEFT_SCATTER_REDUCER_MAX);
  rows("set-rows", false, WEFT_F32, WEFT_SCATTER_REDUCER_SET);
  const auto elements = [&](const char* name, int64_t places, weft_scatter_reducer reducer) {
    if (!b.Wants(name)) return;
    weft_tensor *const updates = b.Floats({kElements}), *const at = b.Indices({kElements}, places), *const x = b.Floats({places});
    b.Add(name, [&](wf_scope* s) { return Tensors{ToElements(s, x, at, updates, reducer)}; });
  };
  elements("add-elements-1k", 1000, WEFT_SCATTER_REDUCER_SUM);
  elements("add-elements-1m", kElements, WEFT_SCATTER_REDUCER_SUM);
  elements("set-elements-1m", kElements, WEFT_SCATTER_REDUCER_SET);
  if (b.Wants("bincount")) {
    weft_tensor* const at = b.Indices({kElements}, 1000);
    b.Add("bincount", [&](wf_scope* s) { return Tensors{wf_bincount(s, at, nullptr, 1000)}; });
  }
  if (b.Wants("add-columns")) {
    weft_tensor *const x = b.Floats({256, 20'000}), *const at = b.Indices({8192}, 20'000), *const updates = b.Floats({256, 8192});
    b.Add("add-columns", [&](wf_scope* s) { return Tensors{wf_index_add(s, x, at, updates, 1)}; });
  }
  if (b.Wants("add-along")) {
    weft_tensor *const x = b.Floats({4096, 1000}), *const at = b.Indices({4096, 100}, 1000), *const updates = b.Floats({4096, 100});
    b.Add("add-along", [&](wf_scope* s) { return Tensors{wf_scatter_reduce(s, x, at, updates, WEFT_SCATTER_REDUCE_REDUCER_SUM, 1)}; });
  }
}

void Gathers(Bench& b) {
  if (b.Wants("take-rows")) {
    weft_tensor *const x = b.Floats({kRows, kWidth}), *const at = b.Indices({kUpdates}, kRows);
    b.Add("take-rows", [&](wf_scope* s) { return Tensors{wf_take(s, x, at)}; });
  }
  if (b.Wants("take-elements")) {
    weft_tensor *const x = b.Floats({kElements}), *const at = b.Indices({kElements}, kElements);
    b.Add("take-elements", [&](wf_scope* s) { return Tensors{wf_take(s, x, at)}; });
  }
  if (b.Wants("take-columns")) {
    weft_tensor *const x = b.Floats({256, 20'000}), *const at = b.Indices({8192}, 20'000);
    b.Add("take-columns", [&](wf_scope* s) { return Tensors{wf_take(s, x, at, 1)}; });
  }
  if (b.Wants("take-along")) {
    weft_tensor *const x = b.Floats({4096, 1000}), *const at = b.Indices({4096, 100}, 1000);
    b.Add("take-along", [&](wf_scope* s) { return Tensors{wf_take_along_axis(s, x, at, 1)}; });
  }
}

constexpr int kTables = 26;
constexpr int64_t kBatch = 4096;

// Tables, which rows of them a batch takes, and the cotangents of these.
struct Model {
  Tensors tables, ids, given;
  Model(Bench& b, int64_t entries, int64_t width) {
    for (int t = 0; t < kTables; ++t) {
      tables.push_back(b.Floats({entries, width}));
      Must(weft_tensor_require_grad(tables.back(), 1));
      ids.push_back(b.Indices({kBatch}, entries));
      given.push_back(b.Floats({kBatch, width}));
    }
  }
  weft_tensor* Loss(wf_scope* s) const {
    weft_tensor* loss = nullptr;
    for (int t = 0; t < kTables; ++t) {
      weft_tensor* const part = wf_sum(s, wf_mul(s, wf_embedding(s, tables[t], ids[t]), given[t]));
      loss = loss == nullptr ? part : wf_add(s, loss, part);
    }
    return loss;
  }
};

void Embeddings(Bench& b) {
  for (const int64_t width : {16, 64, 128}) {
    const std::string name = "embedding-gradient-" + std::to_string(width);
    if (!b.Wants(name)) continue;
    const Model model(b, 10'000, width);
    b.Add(name, [&](wf_scope* s) {
      Tensors gradients(kTables);
      wf_grad(s, model.Loss(s), model.tables.data(), kTables, gradients.data());
      return gradients;
    });
  }
  for (const int64_t width : {16, 64}) {
    const std::string name = "embedding-sgd-" + std::to_string(width);
    if (!b.Wants(name)) continue;
    const Model model(b, 100'000, width);
    weft_optimizer* sgd = nullptr;
    Must(weft_sgd_create(b.ctx(), model.tables.data(), kTables, nullptr, &sgd));
    const auto step = [&](wf_scope* s) {
      weft_tensor* const loss = model.Loss(s);
      Tensors gradients(kTables);
      wf_grad(s, loss, model.tables.data(), kTables, gradients.data());
      wf_try(s, weft_optimizer_step(sgd, gradients.data(), kTables, 1e-3));
      return Tensors{loss};
    };
    b.Add(name, step, /*trains=*/true);
    weft_optimizer_release(sgd);
  }
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
  Bench b(ctx, options, only);
  int rc = 0;
  if (peers && !bench::ReadPeers("--only places", folder, options.quick, &b.beside)) rc = 1;
  Scatters(b);
  Gathers(b);
  Embeddings(b);
  weft_context_release(ctx);
  if (b.rows.empty() && !b.failed()) {  // none begins so
    std::fputs(kHelp, stderr);
    return 2;
  }
  bench::Print(b.rows, options);
  return b.failed() ? 1 : rc;
}
