// Module to module: every pass is one function in one file of its name. The order is in pipeline.cc.
#pragma once

#include "src/ir/function.h"
#include "src/passes/pipeline.h"
#include "src/runtime/status.h"

namespace weft::passes {

// Writes functions of each device out, side by side, where one process stands for all devices; elsewhere each gets its number.
absl::StatusOr<ir::Module> UnfoldDevices(const ir::Module& module, const PipelineOptions& options);

// Makes the caller's types those that the device holds (PipelineOptions::held).
absl::StatusOr<ir::Module> HoldTypes(const ir::Module& module, const PipelineOptions& options);

// Merges calls on the same operands where the results of one contain those of the other: where a gradient is taken, a
// function and its forward step, which also gives the residuals that the backward step reads.
absl::StatusOr<ir::Module> MergeCalls(const ir::Module& module, const PipelineOptions& options);

// Writes calls out, but for those of one function of some size in several places, where the backend claims calls.
absl::StatusOr<ir::Module> InlineCalls(const ir::Module& module, const PipelineOptions& options);

// UNIMPLEMENTED where functions that call functions, written out, would be far more than memory holds. Whoever writes calls out
// asks before.
absl::Status CheckCalls(const ir::Module& module);

// Replaces composites that the backend does not claim by their expansions, also those inside expansions.
absl::StatusOr<ir::Module> ExpandComposites(const ir::Module& module, const PipelineOptions& options);

// Makes every complex value two real ones, everywhere but at the module's parameters and results.
absl::StatusOr<ir::Module> SplitComplex(const ir::Module& module, const PipelineOptions& options);

// Makes every f8, i4, u4, i2 and u2 the byte that holds it, and computes with it in a wider type.
absl::StatusOr<ir::Module> WidenNarrow(const ir::Module& module, const PipelineOptions& options);

// Converts the factors of products before they are multiplied, where no backend has sums of another type than theirs.
absl::StatusOr<ir::Module> ConvertFactors(const ir::Module& module, const PipelineOptions& options);

// Takes out of loops what is carried for nobody, and out of branches the captures that they do not use.
absl::StatusOr<ir::Module> PruneLoops(const ir::Module& module, const PipelineOptions& options);

// Removes what changes nothing and merges chains of shape operations. Every rule keeps every bit of every result: values
// of parameters are never looked at, only attributes and literals that rules made.
absl::StatusOr<ir::Module> Simplify(const ir::Module& module, const PipelineOptions& options);

// Lets products of f16 and bf16 that are computed in f32, and of short integers in i32, read their factors as they lie.
absl::StatusOr<ir::Module> AbsorbConverts(const ir::Module& module, const PipelineOptions& options);

// Makes dot_general read its operands as they lie: transposes before it become dimension numbers.
absl::StatusOr<ir::Module> CanonicalizeDots(const ir::Module& module, const PipelineOptions& options);

// Computes small operations of literals through their reference, where that gives the bits the backend would.
absl::StatusOr<ir::Module> FoldConstants(const ir::Module& module, const PipelineOptions& options);

// Computes equal operations of equal operands once.
absl::StatusOr<ir::Module> MergeEqual(const ir::Module& module, const PipelineOptions& options);

}  // namespace weft::passes
