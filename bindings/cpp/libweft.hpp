/* Weft for C++20: tensors that are values, operators, scopes, options by name, functions from lambdas, errors as
 * exceptions. Header-only, over the C interface of libweft.so.1; it defines no macro but those that guard its files.
 *
 *   #include <libweft.hpp>
 *   weft::context ctx;
 *   weft::tensor x(ctx, {1.f, 2.f, 3.f}), w(ctx, 0.f);
 *   auto loss = [&](weft::tensor w) { return weft::mean(weft::square(w * x - 3 * x)); };
 *   for (int i = 0; i < 100; ++i) w = ctx.step([&] { return w - weft::grad(loss)(w) * 0.05; });
 *   std::cout << w << "\n";  // 3.
 *
 * FAILURES. A function that fails throws weft::error; its twin with try_ in front returns a weft::result, which is
 * read like std::expected. Without exceptions (-fno-exceptions) those without try_ leave the failure in the open
 * weft::scope, whose end or check gives the first one, or, where none is open, to weft::take_failure; what they
 * return fails wherever it is used. Options are structs that are written {.axis = 1, .keepdims = true}, in the order
 * of their declaration.
 *
 * SCOPES. A barrier (context::sync) computes whatever some variable still holds. In a weft::scope, or in
 * context::step, what is recorded belongs to the scope, and a step is one program however long its variables live;
 * what outlives the step is kept (tensor::keep).
 *
 * THREADS. Any thread may call anything; one object is for one thread at a time, copies of it are for others.
 * OWNERSHIP. Each object has a reference and gives it back; what is only borrowed says so. docs/cpp.md is the guide,
 * docs/reference.md has each operation. */
#ifndef LIBWEFT_HPP
#define LIBWEFT_HPP

#include "libweft/checkpoint.hpp"
#include "libweft/context.hpp"
#include "libweft/control.hpp"
#include "libweft/custom.hpp"
#include "libweft/dlpack.hpp"
#include "libweft/error.hpp"
#include "libweft/function.hpp"
#include "libweft/job.hpp"
#include "libweft/operations.hpp"
#include "libweft/operators.hpp"
#include "libweft/optimizer.hpp"
#include "libweft/print.hpp"
#include "libweft/reader.hpp"
#include "libweft/results.hpp"
#include "libweft/selection.hpp"
#include "libweft/tensor.hpp"
#include "libweft/types.hpp"

#endif  // LIBWEFT_HPP
