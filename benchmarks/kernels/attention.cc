// Attention as the CPU backend's kernel beside its expansion: two programs of one function, runs alternating. A ratio below 1 says that
// the kernel is faster. It looks inside: it links the backend itself, not libweft.so.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/bench_util.h"
#include "src/autodiff/gradient.h"
#include "src/backends/cpu/cpu_backend.h"
#include "src/ir/function.h"
#include "src/ops/build.h"
#include "src/ops/registry.h"
#include "src/passes/pipeline.h"

namespace {

using namespace weft;

struct Shape {
  int64_t batch, heads, queries, keys, width;
  bool causal;
  int64_t key_heads = 0;  // 0: as many
  bool rows_first = false;  // operands and result lie as [batch, rows, heads, width], as a cache of keys does
};
constexpr Shape kShapes[] = {
    {1, 12, 64, 64, 64, true},     {1, 12, 64, 64, 64, false},     {1, 12, 128, 128, 64, false},   {1, 12, 197, 197, 64, true},
    {1, 12, 197, 197, 64, false},  {1, 12, 2048, 2048, 64, true},  {1, 12, 2048, 2048, 64, false}, {1, 6, 1500, 1500, 64, false},
    {1, 32, 1024, 1024, 32, false}, {1, 32, 128, 128, 64, true, 8}, {1, 32, 512, 512, 64, true, 8},
    {1, 12, 128, 128, 64, true},   {8, 12, 128, 128, 64, true},    {8, 12, 128, 128, 64, false},   {1, 12, 256, 256, 64, true},
    {1, 12, 256, 256, 64, false},  {1, 12, 512, 512, 64, true},    {1, 12, 512, 512, 64, false},   {1, 12, 1024, 1024, 64, true},
    {1, 12, 1024, 1024, 64, false}, {1, 4, 4096, 4096, 64, true},  {1, 4, 4096, 4096, 64, false},  {1, 12, 1, 512, 64, false},
    {1, 12, 1, 4096, 64, false},   {1, 12, 64, 1024, 64, false},   {64, 4, 16, 16, 32, false},     {8, 3, 197, 197, 64, false},
    {1, 32, 1024, 1024, 64, true, 8}, {1, 32, 1, 512, 64, false, 8}, {1, 12, 1024, 1024, 64, true, 0, true},
    {1, 12, 1, 512, 64, false, 0, true}, {1, 32, 1, 512, 128, false, 8, true}, {32, 12, 1, 512, 64, false},
    {32, 12, 1, 512, 64, false, 0, true},
};

// What a program computes; of kMixed the gradient alone is a kernel.
enum class Part { kForward, kGradient, kBoth, kMixed };
constexpr const char* kPartNames[] = {"", ", gradient", ", both", ", both, forward expanded"};

std::unique_ptr<Executable> Compile(cpu::CpuBackend& backend, const Ref<const ir::Function>& function, bool forward, bool gradient) {
  ir::Module module;
  module.functions.push_back(function);
  passes::PipelineOptions options;
  options.claims = [&](const ir::Node& node) {
    if (&node.op() == &ops::kOp_scaled_dot_product_attention) return forward;
    if (&node.op() == &ops::kOp_scaled_dot_product_attention_gradient) return gradient;
    return backend.Claims(node);
  };
  auto prepared = passes::RunPipeline(std::move(module), options);
  if (!prepared.ok()) return nullptr;
  auto compiled = backend.Compile(*prepared, {});
  return compiled.ok() ? *std::move(compiled) : nullptr;
}

bool Add(cpu::CpuBackend& backend, DType dtype, const Shape& shape, Part part, const bench::Options& options,
         std::vector<bench::Row>& rows) {
  const std::string name = std::string(NameOf(dtype)) + " " + std::to_string(shape.batch) + "x" + std::to_string(shape.heads) + "x" +
                           std::to_string(shape.queries) + "x" + std::to_string(shape.width) + " over " + std::to_string(shape.keys) +
                           (shape.key_heads > 0 ? " of " + std::to_string(shape.key_heads) + " heads" : "") +
                           (shape.rows_first ? " rows first" : "") + (shape.causal ? " causal" : "") + kPartNames[static_cast<int>(part)];
  if (!options.rest.empty() && name.find(options.rest[1]) == std::string::npos) return true;
  std::vector<ir::Value> parameters;
  std::vector<Ref<Buffer>> buffers;
  const int64_t key_heads = shape.key_heads > 0 ? shape.key_heads : shape.heads;
  for (const auto& [heads, length] : {std::pair(shape.heads, shape.queries), {key_heads, shape.keys}, {key_heads, shape.keys},
                                      {shape.heads, shape.queries}}) {
    Dims dims = {shape.batch, heads, length, shape.width};
    if (shape.rows_first) std::swap(dims[1], dims[2]);
    parameters.push_back({ir::Node::Create(ops::kOp_parameter, {}, {}, {ir::Type::Tensor(dtype, dims)}), 0});
    HostTensor values(dtype, dims);
    for (int64_t i = 0; i < values.count(); ++i) values.SetDouble(i, static_cast<double>(i * 7919 % 1000 - 500) / 500);
    auto buffer = backend.ToDevice(backend.devices()[0], dtype, dims, values.bytes());
    if (!buffer.ok()) return false;
    buffers.push_back(*std::move(buffer));
  }
  DeviceArguments arguments;
  arguments.buffers = buffers;
  ir::Builder b;
  const auto turned = [&](const ir::Value& x) { return shape.rows_first ? ops::Transpose(b, x, {0, 2, 1, 3}) : x; };
  ir::Attrs attrs = {shape.causal};
  attrs.set(3, int64_t{key_heads != shape.heads});
  const ir::Value y = turned(ops::Call(b, ops::kOp_scaled_dot_product_attention,
                                       {turned(parameters[0]), turned(parameters[1]), turned(parameters[2]), {}}, attrs));
  if (!b.ok()) return false;
  std::vector<ir::Value> results;
  if (part != Part::kGradient) results.push_back(y);
  if (part != Part::kForward) {
    auto slopes = autodiff::Gradient(b, y, std::span(parameters).first(3), parameters[3]);
    if (!slopes.ok()) return false;
    results.insert(results.end(), slopes->begin(), slopes->end());
  }
  const auto function = ir::Function::Create("main", parameters, results);
  const std::unique_ptr<Executable> programs[] = {Compile(backend, function, part != Part::kMixed, true),
                                                  Compile(backend, function, false, false)};
  if (programs[0] == nullptr || programs[1] == nullptr) return false;
  double best[] = {1e9, 1e9};
  const bench::Clock::time_point begin = bench::Clock::now();
  for (int round = 0; round < 400 && (round < 3 || bench::Since(begin) < (options.quick ? 0.1 : 0.8)); ++round) {
    for (int turn = 0; turn < 2; ++turn) {
      const int i = (round + turn) % 2;
      const bench::Clock::time_point start = bench::Clock::now();
      auto results = programs[i]->Execute({&arguments, 1});
      if (!results.ok() || !(*results)[0].done->Wait().ok()) return false;
      best[i] = std::min(best[i], bench::Since(start));
    }
  }
  rows.push_back({name, best[0] / best[1], "expanded", 0, 0, {{"us", best[0] * 1e6}, {"expanded us", best[1] * 1e6}}});
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options = bench::Parse(argc, argv);
  const bool only = options.rest.size() == 2 && options.rest[0] == "--only";
  if (options.help || (!only && !options.rest.empty())) {
    std::fputs("usage: attention [--json] [--quick] [--help] [--only TEXT of a row's name]\n", options.help ? stdout : stderr);
    return options.help ? 0 : 2;
  }
  const auto backend = cpu::CpuBackend::Create({.threads = options.threads});
  if (!backend.ok()) return 1;
  std::vector<bench::Row> rows;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const Shape& shape : kShapes) {
      if (options.quick && shape.keys > 1024) continue;
      for (const Part part : {Part::kForward, Part::kGradient, Part::kBoth, Part::kMixed}) {
        if (Add(**backend, dtype, shape, part, options, rows)) continue;
        std::fputs("attention: a program failed\n", stderr);
        return 1;
      }
    }
  }
  bench::Print(rows, options);
  return 0;
}
