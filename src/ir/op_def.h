// The description of one operation: everything the rest of Weft knows about it. One operation is one file in src/ops
// with one `constinit const OpDef` (a family whose members differ by a token shares a file); the C function, docs, JSON,
// verifier, reference, tests and benchmarks derive from it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "src/ir/attr.h"
#include "src/ir/mesh.h"
#include "src/ir/node.h"
#include "src/ir/type.h"
#include "src/runtime/ref.h"

namespace weft::ir {

class Builder;
class ScalarBuilder;  // ir/scalar.h
struct ScalarValue;
struct PlanesCall;  // ir/planes.h
struct Split;
class StableHloWriter;  // ir/stablehlo.h
class StableHloOp;      // ir/stablehlo_read.h

// Sets of element types, for operand rules.
using TypeSet = uint32_t;
inline constexpr TypeSet kF = 1;       // f8 of every kind, f16 bf16 f32 f64
inline constexpr TypeSet kSI = 2;      // signed integers
inline constexpr TypeSet kUI = 4;      // unsigned integers
inline constexpr TypeSet kB = 8;       // bool
inline constexpr TypeSet kC = 16;      // c64 c128: only of operations with OpDef::planes, and of those that expand
inline constexpr TypeSet kWhole = 32;  // none of the narrow types (IsNarrow): what looks at the bits of an element
inline constexpr TypeSet kI = kSI | kUI;
inline constexpr TypeSet kNumber = kF | kI;
inline constexpr TypeSet kAnyType = kNumber | kB;  // but complex
inline constexpr TypeSet kEveryType = kAnyType | kC;
bool Contains(TypeSet set, DType dtype);

struct OperandDef {
  std::string_view name;
  TypeSet types;
  std::string_view doc;
  bool optional = false;
  bool variadic = false;  // last operand only: one or more
  // Operands with the same group letter must agree in dtype (0: free).
  char group = 'T';
  bool supplied = false;  // the generator's state: recording gives it, callers never do
};

enum class Kind : uint8_t {
  kPrimitive,  // StableHLO's semantics; every backend runs it
  kComposite,  // stays a node through autodiff; a backend claims it or it is expanded before fusion
  kMacro,      // expands while recording (matmul -> dot_general, sum -> reduce): never a node
};

// Recording prepares a user's operands by this rule before the shape rule sees them.
enum class OperandRule : uint8_t {
  kNone,
  kBroadcast,  // NumPy broadcasting through broadcast_in_dim; dtypes must agree
};

// A function that a call carries: what it computes with, element by element or again and again.
struct RegionDef {
  std::string_view name;
  std::string_view doc;   // what goes in and out
  bool variadic = false;  // last region only: any number
};
using RegionSpan = std::span<const Ref<const Function>>;

// One call to infer: operand types (empty optional operands are null), attributes with defaults filled in, and as many
// regions as the operation has, none of them null.
struct InferCall {
  const OpDef& op;
  std::span<const Type* const> operands;
  const Attrs& attrs;
  RegionSpan regions = {};
};
// Appends the result types or returns a UserError. The caller has checked operand count, dtype sets and groups, and
// prefixes the operation's name and the operand shapes to the message.
using InferFn = absl::Status (*)(const InferCall& call, Types* results);

// The gradient of a region as another one: its parameters, then the cotangents of its float results in; the cotangents of
// the wanted parameters out (zeros where nothing depends on one). On nodes of its own: functions are shared and never marked.
using RegionGradientFn = absl::StatusOr<Ref<const Function>> (*)(const Function& region, std::span<const bool> wanted);

// The same in two steps. The first stands in for the region, so expensive values are computed once. `given`: the
// results that have a cotangent, which are float.
struct SplitGradient;
using RegionSplitFn = absl::StatusOr<Ref<const SplitGradient>> (*)(const Function& region, std::span<const bool> wanted,
                                                                   std::span<const bool> given);

// One reverse step: adds to `grads` (one slot per operand, left empty = no gradient) the cotangent of each operand.
// Only operands with wanted[i] need one. A missing cotangent of a result is an empty Value.
struct GradCall {
  Builder& b;
  const Node& node;
  std::span<const Value> operands;
  std::span<const Value> results;
  std::span<const Value> cotangents;
  std::span<const bool> wanted;
  RegionGradientFn region_gradient;  // for the regions of the node
  RegionSplitFn region_split;
};
using GradFn = absl::Status (*)(const GradCall& call, std::span<Value> grads);

// Composites and macros: the same in terms of other operations, through the builder's sticky error.
struct ExpandCall {
  Builder& b;
  const OpDef& op;
  std::span<const Value> operands;  // absent optional operands are empty
  const Attrs& attrs;
  RegionSpan regions = {};
};
using ExpandFn = absl::Status (*)(const ExpandCall& call, std::span<Value> results);

// Elementwise lowering: operand scalars to the result's scalar, on the loop vocabulary of ir/scalar.h.
struct ScalarCall {
  ScalarBuilder& b;
  std::span<const ScalarValue> operands;
  const Attrs& attrs;
  DType dtype;  // of the result
};
using ScalarFn = ScalarValue (*)(const ScalarCall& call);

using RunRegionFn = absl::StatusOr<std::vector<HostTensor>> (*)(const Function& region,
                                                                std::span<const HostTensor> arguments);

// A region on many examples at once: of parameters of which those that are `batched` have their examples in front. Results that
// depend on them, or are `wanted` so (none: no other), have theirs there, too.
using RegionBatchFn = absl::FunctionRef<absl::StatusOr<Ref<const Function>>(
    const Function& region, std::span<const bool> batched, std::span<const bool> wanted)>;

// One operation on many examples at once (vmap). Operands that are batched have their examples in front, as one more dimension
// 0; the others are the same for all. At least one is batched.
struct BatchCall {
  Builder& b;
  const Node& node;
  std::span<const Value> operands;
  std::span<const bool> batched;  // per operand; not those that are absent
  int64_t size;                   // examples
  RegionBatchFn region_batch;
};
// The results: batched, with one more dimension 0, or where they are the same for all examples without it. Left empty where one
// example after the other is the only way.
using BatchFn = absl::Status (*)(const BatchCall& call, std::span<Value> results);

// The slow, obvious implementation, in double or integers. Results come zero-filled in their final shapes.
struct ReferenceCall {
  const OpDef& op;
  std::span<const HostTensor* const> operands;  // absent optional operands are null
  const Attrs& attrs;
  std::span<HostTensor> results;
  RegionSpan regions = {};
  RunRegionFn run = nullptr;  // there where there are regions
};
using ReferenceFn = absl::Status (*)(const ReferenceCall& call);

// Debug mode: operands that say where, which the operation itself would hold to the range or answer with NaN.
struct IndexCall {
  const OpDef& op;
  std::span<const Type* const> operands;
  std::span<const HostTensor* const> values;  // of integer operands; null for others and absent ones
  const Attrs& attrs;
};
using IndexFn = absl::Status (*)(const IndexCall& call);

using StableHloFn = void (*)(const Node& node, StableHloWriter& writer);
// The way back: an operation of StableHLO text as ours, on the builder of the call, where mistakes stick.
using StableHloReadFn = Values (*)(StableHloOp& op);

// --- What passes ask of an operation. Each of these is read by one pass, which names no operation for it.

// The operation on complex values in terms of real ones, two planes a value: one entry for each result. Mistakes stick to the builder.
using PlanesFn = std::vector<Split> (*)(const PlanesCall& call);

// The same value by less, or an empty one if there is nothing to say. Every bit stays: parameters are never looked at, only
// attributes and literals. The node stands on its new operands and has not been made yet.
struct SimplerCall {
  Builder& b;
  const Node& node;
  std::span<const Value> operands;

  const Value& x() const { return operands[0]; }
  // The operation behind operand 0.
  const Node& from() const { return *operands[0].node; }
  bool from(const OpDef& op) const { return &from().op() == &op; }
};
using SimplerFn = Value (*)(const SimplerCall& call);

// The work of a node, by its types and attributes; moving elements costs nothing.
struct Work {
  double flops = 0;            // additions, products, comparisons, choices: one an element
  double transcendentals = 0;  // exp, log, tanh, division: what takes tens of instructions
};
struct WorkCall {
  const Node& node;
  std::span<const Work> regions;  // of one run of each
};
using WorkFn = absl::StatusOr<Work> (*)(const WorkCall& call);

// Where an element of the operand lies: one index a dimension, each an affine function of some other indices.
struct AffineIndex {
  int64_t offset = 0;
  std::vector<int64_t> coefficients;
};
struct IndexMapCall {
  const Node& node;
  std::span<const AffineIndex> result;  // of the element of the result that is wanted
  const AffineIndex& zero;              // the index 0, with as many coefficients as the others
};
// Kernels read the operand through it: UNIMPLEMENTED where no affine function says which element the result's is.
using IndexMapFn = absl::StatusOr<std::vector<AffineIndex>> (*)(const IndexMapCall& call);

// How a result lies on the mesh, given how the operands do, if nobody moves an element: what a partitioner may be told without costs.
struct LieCall {
  const Node& node;
  const Mesh& mesh;
  std::span<const Sharding> operands;  // one for each operand, checked; those that are absent are whole
};
using LieFn = Sharding (*)(const LieCall& call);

// The meaning of an attribute for the dimensions of an operation that works in any order of them.
enum class Along : uint8_t {
  kNothing,
  kEach,     // an entry a dimension
  kPairs,    // two entries a dimension, low and high
  kNumbers,  // dimensions by number
};

// How a backend without special knowledge of the operation runs it. For a composite: kScalar and kKernel where its own
// code beats the expansion (a backend that has neither expands all the same), kExpand where fusion makes the expansion
// as good.
enum class Lowering : uint8_t {
  kScalar,      // `scalar` per element
  kIndexMap,    // moves elements only, by an affine map of indices: broadcast_in_dim, transpose, slice, reverse, iota
  kReduction,   // reduce
  kKernel,      // a kernel that a backend knows for the operation
  kExpand,      // composites and macros: `expand`
  kPlanes,      // element by element on complex values, which become two real ones before a backend sees them
  kStructural,  // parameter, tuple, fusion: the compiler's own
};

// The cost of one element of an elementwise operation. Fusion weighs by it whether to compute the element again for
// every reader.
enum class Cost : uint8_t {
  kCheap,     // an instruction or a few
  kFunction,  // tens of instructions, or one that takes as long (a division)
};

// Example calls from which tests, docs and benchmark rows are made. `call` lists operand types and attributes, e.g.
// "T[2,3] T[2,3]", "T[4,5] dims=[1] keepdims=true", "i32[7]<0:5> T[5,3]" (integers from 0 to 5 exclusive). T runs over
// the operand's types.
struct Sample {
  std::string_view call;
  double low = -2.0;  // random operand values in [low, high)
  double high = 2.0;
  bool gradient = true;  // smooth enough here for finite differences
};

// Largest error against the reference, as |x - r| <= absolute + relative * |r|, per stored type. 0: exact.
struct Tolerance {
  double f32 = 1e-6;
  double f64 = 1e-14;
  double bf16 = 1e-2;
  double f16 = 2e-3;
  double absolute = 0;  // added as is, times the type's scale (f32 = 1)
};

enum class Part : uint8_t { kGradient, kStableHlo, kLowering, kReference, kSamples, kExample };
// The closed list of reasons for a missing part.
enum class Reason : uint8_t {
  kNone,
  kNotDifferentiable,   // integer or piecewise-constant result
  kExpands,             // the expansion supplies it
  kMovedByExpansionOf,  // reached only from other operations' rules, which are tested
  kRandom,              // no deterministic oracle outside
  kCarriesFunctions,    // samples and examples spell operands and attributes: has tests of its own
  kStructural,          // the compiler's own node
  kNoComplexGradient,   // gradients through complex values are refused by name
  kFromStableHlo,       // comes with StableHLO programs; nobody calls it from C
};
struct Absent {
  Part part;
  Reason reason;
};

struct OpDef {
  std::string_view name;    // StableHLO's: "multiply"
  std::string_view c_name;  // what users call it: "mul" -> weft_mul, wf_mul
  uint16_t since = 0;       // minor of ABI 1 that brought it
  Kind kind = Kind::kPrimitive;
  std::string_view doc;      // shapes, formula, source; first sentence is the summary
  std::string_view example;  // C, one or two lines in the fluent layer
  std::span<const OperandDef> operands;
  std::span<const AttrDef> attrs;
  std::span<const RegionDef> regions;
  std::span<const std::string_view> results;  // names; the count unless variadic
  OperandRule rule = OperandRule::kNone;
  InferFn infer = nullptr;
  GradFn gradient = nullptr;
  ExpandFn expand = nullptr;
  BatchFn batching =
      nullptr;  // null: element by element where there is `scalar`, as the expansion, or one example after the other
  Lowering lowering = Lowering::kKernel;
  ScalarFn scalar = nullptr;
  ReferenceFn reference = nullptr;
  IndexFn indices = nullptr;        // null: nothing can be out of range
  StableHloFn stablehlo = nullptr;  // null: the generic form with the schema's attributes
  StableHloReadFn read = nullptr;   // null: attributes by the schema's names, functions for regions
  std::span<const Sample> samples;
  Tolerance tolerance;
  std::span<const Absent> absent;
  bool exported = true;  // has a C function
  bool commutative = false;
  bool random = false;  // takes a generator state: recording supplies it
  // The expansion and the gradient only move, choose, or round each result once, so that f16 and bf16 operands may go in as
  // they are. Otherwise both rules see f32 in their place and what they give is rounded at the end.
  bool rounds_once = false;
  Cost cost = Cost::kCheap;
  // Cheaper to compute again from its operands than to store for a later program: moves elements or repeats few.
  bool cheap_again = false;
  // The result is the operand's bytes in their order: nothing needs to run where it has memory of its own.
  bool alias = false;
  bool calls = false;      // its region is written out in its place, or made once for several
  bool parameter = false;  // a function's argument: stands in its list of parameters and nowhere else
  bool opaque = false;     // passes neither merge nor fold it
  // The expansion sees f64, not f32, in the place of f16 and bf16, so that each result is the exact one rounded once.
  bool narrow_in_f64 = false;

  PlanesFn planes = nullptr;       // null: takes and gives no complex values, or expands where it does
  SimplerFn simpler = nullptr;     // null: nothing simpler is known
  WorkFn work = nullptr;           // null: by `cost` for each element where there is `scalar`, else nothing
  IndexMapFn index_map = nullptr;  // there where `lowering` is kIndexMap and there is an operand
  // Null: each dimension of the result lies as the same dimension of operands of the same rank does, where it is as long, and
  // where there is `index_map`, as the dimension that it is an element of.
  LieFn lies = nullptr;
  // An entry an attribute, trailing kNothing left out. Where there is one, the operation works in any order of dimensions: permuting
  // operands, result and these attributes changes no bit.
  std::span<const Along> along;
  // Only moves elements, or carries functions that take what it takes: narrow types (f8, i4 …) go through it as the bytes that
  // hold them. All other operations compute with them in a wider type and round or wrap the result once.
  bool on_bytes = false;
  // Looks at the bits of an element, or is the caller's own code: computes on the types that the caller wrote, whatever the device
  // holds for them. So a shift by 40 is one, and a custom operation of double gets doubles.
  bool as_seen = false;
  // Attributes with which a result may be an end of its type's range, whatever the operands: the extremes of no elements.
  bool (*gives_ends)(const Attrs& attrs) = nullptr;
};

}  // namespace weft::ir
