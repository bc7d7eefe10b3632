// See program.h.
#include "src/backends/pjrt/program.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "src/ir/rewrite.h"
#include "src/ir/stablehlo.h"
#include "src/ops/build.h"
#include "src/ops/custom/custom_call.h"
#include "src/ops/generated/attributes.h"
#include "src/ops/random/bits.h"
#include "src/ops/registry.h"
#include "src/passes/shardings.h"

namespace weft::pjrt {
namespace {

using ir::Type;
using ir::Value;

// No device has so much; XLA divides by what is left of such sizes.
constexpr double kMostBytes = 0x1p44;

absl::Status CheckSize(double bytes, std::string_view what) {
  if (bytes <= kMostBytes) return absl::OkStatus();
  return UserErrorOf(absl::StatusCode::kResourceExhausted, what, " ", bytes / 0x1p40, " TiB, which no device has");
}

// Refuses programs that plugins do not refuse but die of, by types and sizes.
absl::Status CheckTypes(const ir::Function& main) {
  const auto bytes_of = [](const Type& type) {
    double bytes = BytesOf(type.dtype);
    for (const int64_t dim : type.dims) bytes *= static_cast<double>(dim);
    return bytes;
  };
  for (const ir::Function* function : ir::CalleesFirst(main)) {
    for (const ir::Node* node : function->nodes()) {
      for (const Type& type : node->results()) {
        if (!type.is_tensor()) continue;
        if (std::ranges::any_of(type.dims, [](int64_t dim) { return dim < 0; })) {
          return UserError(node->op().name, " ", ToString(type),
                           " has a dimension that is not known; plugins want all");
        }
        WEFT_RETURN_IF_ERROR(CheckSize(bytes_of(type), absl::StrCat(node->op().name, " ", ToString(type), " has")));
      }
    }
  }
  double all = 0;
  for (const Value& parameter : main.parameters()) all += bytes_of(parameter.type());
  for (const Value& result : main.results()) all += bytes_of(result.type());
  return CheckSize(all, "a program's arguments and results have together");
}

// Rewrites operations that plugins' compilers handle better in another form.
ir::Values ForPlugins(const ir::RewriteCall& call, std::string_view platform) {
  const ir::Node& node = call.node;
  if (ops::GoesByBlocks(node)) {
    ir::Values drawn = ops::PhiloxByBlocks(call.b, call.operands[0], node.type(1).dims, node.type(1).dtype);
    // XLA copies a fused operation into each of its users, and of ten rounds in each its compiler for CPUs makes code for minutes.
    // libtpu's makes 2.8 times the code of bits that it has to keep (tests/tpu/beside_jax.py block:default).
    if (platform != "tpu") drawn[1] = ops::Call(call.b, ops::kOp_optimization_barrier, {drawn[1]});
    return drawn;
  }
  // XLA:CPU has a fast convolution only for kernels as they are.
  if (&node.op() != &ops::kOp_convolution) return {};
  const ops::ConvolutionAttrs attrs{node.attrs()};
  if (!attrs.has_window_reversal()) return {};
  ir::Ints turned;
  for (size_t d = 0; d < attrs.window_reversal().size(); ++d) {
    if (attrs.window_reversal()[d] != 0) turned.push_back(attrs.kernel_dimensions()[2 + d]);
  }
  if (turned.empty()) return {};
  ir::Attrs forward = node.attrs();
  forward.set(ops::ConvolutionAttrs::kWindowReversal, ir::Ints(attrs.window_reversal().size(), 0));
  return {ops::Call(call.b, node.op(), {call.operands[0], ops::Reverse(call.b, call.operands[1], turned)}, forward)};
}

// A parameter out of the words: 64-bit elements lie in two, low half first, narrower ones in the low bits of a whole one.
Value OfWords(ir::Builder& b, const Value& words, uint32_t first, const Type& type) {
  const int bits = BitsOf(type.dtype);
  const int64_t count = type.count(), at = first, each = bits > 32 ? bits / 32 : 1;
  const auto part = [&](int64_t start, int64_t end, int64_t step) {
    return ops::Slice(b, words, {start}, {end}, {step});
  };
  Value x;
  if (IsComplex(type.dtype)) {
    const Type half = Type::Tensor(PartOf(type.dtype), {2 * count});
    const Value parts = OfWords(b, words, first, half);
    const auto of = [&](int64_t start) { return ops::Slice(b, parts, {start}, {2 * count}, {2}); };
    x = ops::Call(b, ops::kOp_complex, {of(0), of(1)});
  } else if (bits == 64) {
    const Value low = ops::Convert(b, part(at, at + 2 * count, 2), DType::kU64);
    const Value high = ops::Convert(b, part(at + 1, at + 2 * count, 2), DType::kU64);
    const Value shifted = ops::Call(b, ops::kOp_shift_left, {high, ops::FullLike(b, high, 32)});
    x = ops::Call(b, ops::kOp_bitwise_or, {low, shifted});
  } else {
    x = part(at, at + each * count, 1);
    if (bits < 32) {
      x = ops::Call(b, ops::kOp_bitwise_and, {x, ops::FullLike(b, x, std::ldexp(1, bits) - 1)});
      if (!IsBool(type.dtype)) x = ops::Convert(b, x, bits == 16 ? DType::kU16 : DType::kU8);
    }
  }
  if (IsBool(type.dtype)) x = ops::Compare(b, ops::Direction::kNe, x, 0);
  if (b.ok() && x.dtype() != type.dtype) x = ops::Call(b, ops::kOp_bitcast_convert, {x}, {type.dtype});
  return ops::Reshape(b, x, type.dims);
}

std::string ShortName(const Type& type) { return absl::StrCat(NameOf(type.dtype), "/", absl::StrJoin(type.dims, "/")); }

// The figures of a program that are stored; the others are the same for all, or belong to one compilation.
constexpr int64_t ExecutableStats::* kFigures[] = {&ExecutableStats::temporary_bytes, &ExecutableStats::code_bytes,
                                                   &ExecutableStats::flops, &ExecutableStats::bytes_accessed};

absl::StatusOr<Type> TypeOf(std::string_view name) {
  const std::vector<std::string> parts = absl::StrSplit(name, '/');
  const std::optional<DType> dtype = ParseDType(parts[0]);
  if (!dtype) return InternalError("a stored program has a type '", name, "'");
  Type type = Type::Scalar(*dtype);
  for (size_t i = 1; i < parts.size(); ++i) {
    int64_t dim = -1;
    if (parts.size() == 2 && parts[1].empty()) break;  // a scalar
    if (!absl::SimpleAtoi(parts[i], &dim) || dim < 0) return InternalError("a stored program has a type '", name, "'");
    type.dims.push_back(dim);
  }
  return type;
}

// The module's, where parameters in the argument block have become one that is whole.
ir::Participants ParticipantsOf(const ir::Module& module) {
  ir::Participants who = module.participants;
  if (who.parameters.empty()) return who;
  std::vector<ir::Sharding> buffers;
  const std::span<const ir::ParameterInfo> infos = module.main().parameter_infos();
  for (size_t i = 0; i < infos.size(); ++i) {
    if (infos[i].role == ir::ParameterInfo::Role::kBuffer) buffers.push_back(who.parameters[i]);
  }
  if (module.argument_words > 0) buffers.emplace_back();
  who.parameters = std::move(buffers);
  return who;
}

// The part of a value that one process has.
Type PartOf(const ir::Participants& who, const std::vector<ir::Sharding>& shardings, size_t i, const Type& type) {
  if (who.partitions == 1 || i >= shardings.size() || !type.is_tensor()) return type;
  return Type::Tensor(type.dtype, ir::BoxOf(who.mesh, shardings[i], type.dims, 0).sizes);
}

}  // namespace

absl::StatusOr<std::string> ToText(const ir::Module& given, Program* program, const TextOptions& options) {
  WEFT_RETURN_IF_ERROR(ops::RefuseCustomCalls(given, options.platform));
  const auto for_plugins = [&](const ir::RewriteCall& call) { return ForPlugins(call, options.platform); };
  WEFT_ASSIGN_OR_RETURN(const ir::Module module, ir::Rewrite(given, for_plugins));
  const ir::Function& main = module.main();
  WEFT_RETURN_IF_ERROR(CheckTypes(main));
  std::vector<Value> parameters;
  std::vector<ir::ParameterInfo> infos;
  ir::FunctionCopier copier;
  HashMap<const ir::Node*, Value> now;
  ir::Builder b;
  const uint32_t count = module.argument_words;
  const Value words = count > 0
                          ? Value{ir::Node::Create(ops::kOp_parameter, {}, {}, {Type::Tensor(DType::kU32, {count})}), 0}
                          : Value{};
  for (size_t i = 0; i < main.parameters().size(); ++i) {
    const Value& parameter = main.parameters()[i];
    const ir::ParameterInfo& info = main.parameter_infos()[i];
    if (info.role == ir::ParameterInfo::Role::kWords) {
      now[parameter.node.get()] = OfWords(b, words, info.word, parameter.type());
      continue;
    }
    const Value fresh{ir::Node::Create(ops::kOp_parameter, {}, {}, {parameter.type()}), 0};
    now[parameter.node.get()] = fresh;
    parameters.push_back(fresh);
    infos.push_back(info);
    program->arguments.push_back(PartOf(module.participants, module.participants.parameters, i, parameter.type()));
    program->aliased.push_back(info.donated_to >= 0);
  }
  program->words = count;
  if (count > 0) {
    parameters.push_back(words);
    infos.emplace_back();
  }
  WEFT_RETURN_IF_ERROR(b.status());
  HashMap<const ir::Node*, Ref<const ir::Node>> copies;
  const auto resolve = [&](const Value& value) -> Value {
    if (!value) return {};
    if (const auto found = now.find(value.node.get()); found != now.end()) return found->second;
    return {copies.at(value.node.get()), value.result};
  };
  std::vector<Ref<const ir::Function>> regions;
  for (const ir::Node* node : main.nodes()) {
    if (now.contains(node)) continue;
    ir::Values operands;
    for (const Value& operand : node->operands()) operands.push_back(resolve(operand));
    regions.clear();
    for (const Ref<const ir::Function>& region : node->regions()) regions.push_back(copier.Copy(*region));
    copies[node] = ir::CopyNode(*node, std::move(operands), regions);
  }
  std::vector<Value> results;
  for (const Value& result : main.results()) {
    program->results.push_back(PartOf(module.participants, module.participants.results, results.size(), result.type()));
    results.push_back(resolve(result));
  }
  ir::Module fresh;
  fresh.functions.push_back(ir::Function::Create("main", std::move(parameters), std::move(results), std::move(infos)));
  fresh.participants = ParticipantsOf(module);
  program->replicas = fresh.participants.replicas;
  program->partitions = fresh.participants.partitions;
  if (!fresh.participants.mesh.none()) {
    program->mesh = fresh.participants.mesh;
    program->lying = fresh.participants.results;
    program->lying.resize(program->results.size());
  }
  return ir::ToStableHlo(fresh, {.locations = options.locations, .precision = options.precision, .shardings = false});
}

absl::Status Refused(const absl::Status& status, const ir::Module& given, TextOptions options) {
  const std::vector<std::string_view> said = absl::StrSplit(status.message(), ':');  // … "-", "12", "10", …
  size_t number = 0;
  for (size_t i = 0; i + 1 < said.size() && number == 0; ++i) {
    if (said[i].ends_with('-') && !absl::SimpleAtoi(said[i + 1], &number)) number = 0;
  }
  options.locations = true;
  Program unused;
  const absl::StatusOr<std::string> text = ToText(given, &unused, options);
  if (number == 0 || !text.ok()) return status;
  const std::vector<std::string_view> lines = absl::StrSplit(*text, '\n');
  if (number > lines.size()) return status;
  // %3 = "stablehlo.tanh"(…) … loc("model.c":12:1)
  const std::string_view line = lines[number - 1];
  const std::vector<std::string_view> quoted = absl::StrSplit(line, '"');
  const size_t loc = line.rfind(" loc(\"");
  if (loc == line.npos || quoted.size() < 2) return status;
  const std::vector<std::string_view> place = absl::StrSplit(line.substr(loc + 6), '"');
  const std::vector<std::string_view> position = absl::StrSplit(place.back(), ':');
  if (position.size() < 2) return status;
  return absl::Status(
      status.code(), absl::StrCat(status.message(), " (", quoted[1], " recorded at ", place[0], ":", position[1], ")"));
}

api::Program AsArgument(std::string_view text) {
  static constexpr std::string_view kFormat = "mlir";
  api::Program code{
      .code = text.data(), .code_size = text.size(), .format = kFormat.data(), .format_size = kFormat.size()};
  code.head.struct_size = sizeof(code);
  return code;
}

bool StaysWhole(const ir::Node& composite) {
  if (ops::GoesByBlocks(composite)) return true;
  return !composite.regions().empty() && composite.op().stablehlo != nullptr;
}

std::string Pack(const Program& program, std::string_view executable) {
  std::string arguments, results;
  for (size_t i = 0; i < program.arguments.size(); ++i) {
    absl::StrAppend(&arguments, " ", program.aliased[i] ? "*" : "", ShortName(program.arguments[i]));
  }
  for (const Type& result : program.results) absl::StrAppend(&results, " ", ShortName(result));
  std::vector<int64_t> figures;
  for (int64_t ExecutableStats::* const figure : kFigures) figures.push_back(program.stats.*figure);
  // Programs of one process have the form that they had before there were others.
  const bool alone = program.replicas == 1 && program.partitions == 1;
  // How results lie is told where the plugin has said it.
  std::string lying;
  for (size_t i = 0; i < program.lying.size(); ++i) {
    const std::string text = ir::ToString(program.mesh, program.lying[i], program.results[i].rank());
    absl::StrAppend(&lying, i == 0 ? ir::ToString(program.mesh) + " " : ";", text);
  }
  const std::string form =
      alone ? "weft pjrt 3"
            : absl::StrCat("weft pjrt ", lying.empty() ? 4 : 5, " ", program.replicas, " ", program.partitions);
  return absl::StrCat(form, "\n", program.words, "\n", absl::StrJoin(figures, " "), "\n", arguments, "\n", results,
                      "\n", lying, lying.empty() ? "" : "\n", program.device, " ", program.text.size(), "\n",
                      program.text, executable);
}

namespace {

// Reads how results lie: the mesh, a blank, and a sharding for each.
absl::Status UnpackLying(std::string_view line, Program* program) {
  const std::pair<std::string_view, std::string_view> both = absl::StrSplit(line, absl::MaxSplits(' ', 1));
  WEFT_ASSIGN_OR_RETURN(program->mesh, ir::ParseMesh(both.first));
  for (const std::string_view text : absl::StrSplit(both.second, ';')) {
    WEFT_ASSIGN_OR_RETURN(program->lying.emplace_back(), ir::ParseSharding(text, program->mesh));
  }
  if (program->lying.size() == program->results.size() && program->mesh.size() == program->partitions &&
      std::ranges::none_of(program->lying, passes::IsOpen)) {
    return absl::OkStatus();
  }
  return InternalError("a stored program of a plugin says of its results '", line, "'");
}

}  // namespace

absl::StatusOr<std::string_view> Unpack(std::string_view packed, Program* program) {
  const bool lies = packed.starts_with("weft pjrt 5 ");
  std::string_view lines[6], lying;
  for (size_t i = 0; i < std::size(lines) + (lies ? 1 : 0); ++i) {
    const size_t end = packed.find('\n');
    if (end == packed.npos) return InternalError("a stored program of a plugin is cut off");
    (lies && i == 5 ? lying : lines[std::min(i, std::size(lines) - 1)]) = packed.substr(0, end);
    packed.remove_prefix(end + 1);
  }
  const std::vector<std::string_view> form = absl::StrSplit(lines[0], ' ');
  const bool many = form.size() == 5 && (lies || lines[0].starts_with("weft pjrt 4 ")) &&
                    absl::SimpleAtoi(form[3], &program->replicas) && absl::SimpleAtoi(form[4], &program->partitions);
  if ((lines[0] != "weft pjrt 3" && !many) || !absl::SimpleAtoi(lines[1], &program->words)) {
    return InternalError("a stored program of a plugin begins with '", lines[0], "'");
  }
  const std::vector<std::string_view> figures = absl::StrSplit(lines[2], ' ');
  bool numbers = figures.size() == std::size(kFigures);
  for (size_t i = 0; numbers && i < figures.size(); ++i) {
    numbers = absl::SimpleAtoi(figures[i], &(program->stats.*kFigures[i]));
  }
  if (!numbers) return InternalError("a stored program of a plugin says of itself '", lines[2], "'");
  for (std::string_view name : absl::StrSplit(lines[3], ' ', absl::SkipEmpty())) {
    program->aliased.push_back(name.starts_with('*'));
    if (name.starts_with('*')) name.remove_prefix(1);
    WEFT_ASSIGN_OR_RETURN(program->arguments.emplace_back(), TypeOf(name));
  }
  for (const std::string_view name : absl::StrSplit(lines[4], ' ', absl::SkipEmpty())) {
    WEFT_ASSIGN_OR_RETURN(program->results.emplace_back(), TypeOf(name));
  }
  if (lies) WEFT_RETURN_IF_ERROR(UnpackLying(lying, program));
  const std::pair<std::string_view, std::string_view> of_text = absl::StrSplit(lines[5], absl::MaxSplits(' ', 1));
  size_t size = 0;
  if (!absl::SimpleAtoi(of_text.first, &program->device) || !absl::SimpleAtoi(of_text.second, &size) ||
      size > packed.size()) {
    return InternalError("a stored program of a plugin says of its device and its text '", lines[5], "'");
  }
  program->text = packed.substr(0, size);
  packed.remove_prefix(size);
  return packed;
}

std::string_view CompileOptionBytes() {
  // CompileOptionsProto: 3 executable_build_options {4 num_replicas = 1, 5 num_partitions = 1, 6 use_spmd_partitioning = 1,
  // 19 use_shardy_partitioner = 1}, 4 compile_portable_executable = 1.
  static constexpr char kBytes[] = "\x1a\x09\x20\x01\x28\x01\x30\x01\x98\x01\x01\x20\x01";
  return {kBytes, sizeof(kBytes) - 1};
}

namespace {

std::string Varint(uint64_t value) {
  std::string bytes;
  do {
    bytes.push_back(static_cast<char>((value & 0x7f) | (value > 0x7f ? 0x80 : 0)));
    value >>= 7;
  } while (value != 0);
  return bytes;
}

// A field that holds a message: its tag, its length, its bytes.
std::string Message(std::string_view tag, const std::string& fields) {
  return absl::StrCat(tag, Varint(fields.size()), fields);
}

// DeviceAssignmentProto: 1 replica_count, 2 computation_count, 3 computation_devices {1 replica_device_ids, packed}, one a
// partition.
std::string AssignmentBytes(uint32_t replicas, uint32_t partitions, std::span<const int64_t> devices) {
  std::string bytes = absl::StrCat("\x08", Varint(replicas), "\x10", Varint(partitions));
  for (uint32_t p = 0; p < partitions; ++p) {
    std::string ids;
    for (uint32_t r = 0; r < replicas; ++r) ids += Varint(static_cast<uint64_t>(devices[r * partitions + p]));
    bytes += Message("\x1a", Message("\x0a", ids));
  }
  return bytes;
}

}  // namespace

std::string CompileOptionBytes(int64_t device) { return CompileOptionBytes(1, 1, {&device, 1}); }

std::string CompileOptionBytes(uint32_t replicas, uint32_t partitions, std::span<const int64_t> devices) {
  // The fields of above, and 9 device_assignment between them.
  const std::string assignment = devices.empty() ? "" : Message("\x4a", AssignmentBytes(replicas, partitions, devices));
  return Message("\x1a", absl::StrCat("\x20", Varint(replicas), "\x28", Varint(partitions), "\x30\x01", assignment,
                                      "\x98\x01\x01"));
}

absl::StatusOr<std::vector<int64_t>> AssignedIds(const Program& program, std::span<const uint32_t> assignment,
                                                 size_t known, absl::FunctionRef<int64_t(uint32_t)> id_of) {
  std::vector<int64_t> ids;
  if (assignment.empty()) return ids;
  const uint64_t wanted = uint64_t{program.replicas} * program.partitions;
  if (assignment.size() != wanted) {
    return UserError("the device assignment names ", assignment.size(), " devices for a program of ", wanted);
  }
  std::vector<bool> used(known);
  for (const uint32_t device : assignment) {
    if (device >= known) return UserError("the device assignment names device ", device, "; there are ", known);
    if (used[device]) return UserError("the device assignment names device ", device, " twice");
    used[device] = true;
    ids.push_back(id_of(device));
  }
  return ids;
}

absl::Status CompileFor(int64_t id, bool alone, std::span<const int64_t> assigned,
                        absl::FunctionRef<absl::Status(std::string_view)> compile, Program* program) {
  if (uint64_t{program->replicas} * program->partitions > 1) {
    return compile(CompileOptionBytes(program->replicas, program->partitions, assigned));
  }
  if (!assigned.empty()) {
    id = assigned[0];
    alone = true;
  }
  if (!alone) {
    const absl::Status status = compile(CompileOptionBytes());
    const bool refused = (absl::IsUnimplemented(status) || absl::IsInvalidArgument(status)) &&
                         absl::StrContainsIgnoreCase(status.message(), "portable");
    if (!refused) return status;
  }
  WEFT_RETURN_IF_ERROR(compile(CompileOptionBytes(id)));
  program->device = id;
  return absl::OkStatus();
}

}  // namespace weft::pjrt
