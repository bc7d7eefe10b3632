// iota: each element is its index along one dimension.
#include "src/ir/stablehlo.h"
#include "src/ir/stablehlo_read.h"
#include "src/ops/families.h"
#include "src/ops/planes.h"
#include "src/runtime/launch_look.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr AttrDef kAttrs[] = {{"shape", AttrType::kInts, "result shape", true},
                              {"dimension", AttrType::kInt, "dimension that counts", true},
                              {"dtype", AttrType::kDType, "element type", false, "i32"}};

absl::Status Infer(const InferCall& call, Types* results) {
  const Ints& shape = Attr<kAttrs, "shape">(call.attrs);
  const int64_t dimension = Attr<kAttrs, "dimension">(call.attrs);
  if (dimension < 0 || dimension >= static_cast<int64_t>(shape.size())) {
    return UserError("dimension is ", dimension, "; shape ", DimsToString(shape), " has dimensions 0 to ",
                     static_cast<int64_t>(shape.size()) - 1);
  }
  if (!Contains(kNumber | kC, Attr<kAttrs, "dtype">(call.attrs))) {
    return UserError("dtype ", NameOf(Attr<kAttrs, "dtype">(call.attrs)), " is not a number type");
  }
  results->push_back(Type::Tensor(Attr<kAttrs, "dtype">(call.attrs), ToDims(shape)));
  return absl::OkStatus();
}

absl::Status Reference(const ReferenceCall& call) {
  HostTensor& y = call.results[0];
  const int64_t dimension = Attr<kAttrs, "dimension">(call.attrs);
  const int64_t stride = StridesOf(y.dims())[dimension];
  PieceLook look(100);
  for (int64_t k = 0; k < y.count() && !look.Ends(); ++k) y.SetInt(k, (k / stride) % y.dims()[dimension]);
  return absl::OkStatus();
}

void StableHlo(const Node& node, StableHloWriter& writer) {
  writer.Emit("iota", {{"iota_dimension", ShloI64(Attr<kAttrs, "dimension">(node.attrs()))}});
}

Values Read(StableHloOp& op) {
  Attrs attrs = op.SchemaAttrs();
  attrs.set(AttrPosition<kAttrs, "dimension">(), op.Int("iota_dimension", 0));
  return {Call(op.b, kOp_iota, {}, std::move(attrs))};
}

constexpr Sample kSamples[] = {{"shape=[5] dimension=0"},
                               {"shape=[2,3] dimension=1 dtype=f32"},
                               {"shape=[2,3,4] dimension=1 dtype=u8"},
                               {"shape=[0,2] dimension=0 dtype=i64"}};

Splits OnPlanes(const PlanesCall& call) {
  const Type& type = call.node.type();
  return Complex(
      FromReal(call.b, Iota(call.b, PartOf(type.dtype), type.dims, Attr<kAttrs, "dimension">(call.attrs()))));
}

}  // namespace

constinit const OpDef kOp_iota = {
    .name = "iota",
    .c_name = "iota",
    .doc = "Each element is its index along one dimension: 0, 1, 2, … repeated along the others.",
    .example = "index = wf_iota(s, WF_INTS(10), 0, .dtype = WEFT_I32);",
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .lowering = Lowering::kIndexMap,
    .reference = Reference,
    .stablehlo = StableHlo,
    .read = Read,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kNoGradient,
    .cheap_again = true,  // counts, reads nothing
    .planes = OnPlanes,
};

}  // namespace weft::ops
