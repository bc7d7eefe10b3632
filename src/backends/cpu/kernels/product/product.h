// A matrix product as its implementations see it. An implementation is a constant in a file of its own and a line of products.list.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "src/backends/cpu/kernels/product/gemm_plan.h"
#include "src/backends/cpu/kernels/tiles/kernels_internal.h"

namespace weft::cpu {

struct Product {
  Product(const CpuTarget& target, const GemmCall& call);
  // The same product at other places.
  Product(const Product& product, const GemmCall& call, const GemmPlan* plan)
      : target(product.target),
        call(call),
        amx(product.amx),
        types(product.types),
        registers(product.registers),
        plan(plan) {}

  const CpuTarget& target;
  const GemmCall& call;  // checked, and not empty
  bool amx = false;      // AMX's tiles serve the types
  TypePlan types;
  bool registers = false;          // register tiles do, and `types` says how
  const GemmPlan* plan = nullptr;  // made before, if there is one
};

struct ProductImplementation {
  std::string_view name;  // as plans of launches show it
  // Null: it takes the product. Else why not, a literal.
  const char* (*refuses)(const Product& product);
  // Runs it, or prepares it, as the duty says.
  absl::Status (*run)(const Product& product, KernelSet& kernels, KernelSet::State& state, const Duty& duty);
  // They are there if it packs B, and can be given it packed: its bytes (0: this product reads it in place), its form, and the packing.
  int64_t (*packed_bytes)(const Product& product) = nullptr;
  std::vector<int64_t> (*packed_form)(const Product& product) = nullptr;
  void (*pack)(const Product& product, void* packed, ThreadPool& pool) = nullptr;
};

#define WEFT_PRODUCT(name) extern const ProductImplementation kProduct##name;
#include "src/backends/cpu/kernels/product/products.list"
#undef WEFT_PRODUCT

const ProductImplementation& ChooseProduct(const Product& product);

// Tells whether register tiles compute it, and deal out columns, the same of each of so many equal parts of C (Epilogue::parts).
bool DealsParts(const Product& product, int64_t parts, int threads);
// KernelSet::GemmPair of two that do (gemm.cc).
absl::Status RunPair(const Product& first, const Product& second, KernelSet::State& state, ThreadPool& pool);

}  // namespace weft::cpu
