// See factors.h. LAPACK's matrices lie by columns, so each is turned round on its way in and out.
#include "src/linalg/factors.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <new>
#include <type_traits>

#include "src/linalg/lapack.h"
#include "src/linalg/leaving.h"
#include "src/linalg/real_of.h"
#include "src/runtime/launch_look.h"

namespace weft::linalg {
namespace {

// Memory that may be refused.
template <typename T>
class Room {
 public:
  bool Reserve(int64_t count) {
    data_.reset(new (std::nothrow) T[static_cast<size_t>(std::max<int64_t>(count, 1))]);
    return data_ != nullptr;
  }
  T* get() const { return data_.get(); }

 private:
  std::unique_ptr<T[]> data_;
};

// One thread's part of a batch: computed in S, of planes of P.
template <typename S, typename P>
class Worker {
 public:
  using R = typename RealOf<S>::Type;

  Worker(const Job& job, std::span<const void* const> operands, std::span<void* const> results)
      : job_(job),
        shapes_(Results(job)),
        operands_(operands),
        results_(results),
        m_(static_cast<int>(job.rows)),
        n_(static_cast<int>(job.columns)),
        k_(std::min(m_, n_)) {}

  // False where there is no memory.
  bool Reserve();
  // Leaves its results unfinished where the launch ends meanwhile.
  void Compute(int64_t member) {
    member_ = member;
    (void)RunOrLeave([this] {
      if (!Factor()) Spoil();
    });
  }

 private:
  static constexpr size_t kPlanes = kIsComplex<S> ? 2 : 1;

  bool ReserveWork(const WorkSpace<S, R>& asked);
  bool Factor() {
    switch (job_.kind) {
      case Kind::kLu: return Lu();
      case Kind::kQr:
      case Kind::kReflectors: return Qr();
      case Kind::kEigh: return Eigh();
      case Kind::kSvd: return Svd();
      case Kind::kEig: return Eig();
      case Kind::kCholesky: return Cholesky();
      case Kind::kTriangular: return Triangular();
      case Kind::kLdl: return Ldl();
      case Kind::kLdlSolve: return LdlSolve();
    }
    return false;
  }
  bool Lu();
  bool Qr();
  bool Eigh();
  bool Svd();
  bool Eig();
  bool Cholesky();
  bool Triangular();
  bool Ldl();
  bool LdlSolve();
  // Fills a_ with one triangle and zeros; false if an element of the triangle is not finite. The other may hold anything.
  bool LoadTriangle(bool lower);
  // Reads the plane's numbers as pivots; false where no decomposition gives them, whose rows lie outside.
  bool LoadPivots(size_t plane);

  int64_t OrderOfA() const { return job_.has(kRight) ? n_ : m_; }
  int ColumnsOfQ() const { return job_.has(kFull) ? m_ : k_; }
  int RowsOfVh() const { return job_.has(kFull) ? n_ : k_; }
  char Vectors() const { return job_.has(kValuesOnly) ? 'N' : 'V'; }

  template <typename T>
  T* Result(size_t plane) const {
    return static_cast<T*>(results_[plane]) + member_ * shapes_[plane].count();
  }
  // The operand whose first plane it is, by columns; false if an element is not finite.
  bool Load(size_t plane, int64_t rows, int64_t columns, S* to) const;
  // A factor by columns, `stride` apart, as the result whose first plane it is.
  void Store(size_t plane, int64_t rows, int64_t columns, const S* from, int64_t stride) const;
  void StoreValues(size_t plane, const R* from) const { std::copy_n(from, shapes_[plane].count(), Result<P>(plane)); }
  void StoreIdentity(size_t plane, int64_t rows, int64_t columns, S* room) const;
  // NaN in place of numbers that there are not; the order of rows as it was.
  void Spoil() const;

  const Job job_;
  const std::vector<Shape> shapes_;
  const std::span<const void* const> operands_;
  const std::span<void* const> results_;
  const int m_, n_, k_;
  int64_t member_ = 0;
  Room<S> a_, u_, v_, tau_, work_;
  Room<R> values_, more_values_, real_work_;
  Room<int> whole_work_, pivots_;
  WorkSpace<S, R> space_;
};

template <typename S, typename P>
bool Worker<S, P>::Load(size_t plane, int64_t rows, int64_t columns, S* to) const {
  bool finite = true;
  const int64_t first = member_ * rows * columns;
  const auto number = [&](size_t p, int64_t i) {
    const P x = static_cast<const P*>(operands_[plane + p])[first + i];
    finite = finite && std::isfinite(x);
    return static_cast<R>(x);
  };
  Looks looks(columns);
  for (int64_t i = 0; i < rows; ++i) {
    looks.Pass();
    for (int64_t j = 0; j < columns; ++j) {
      if constexpr (kIsComplex<S>) {
        to[j * rows + i] = {number(0, i * columns + j), number(1, i * columns + j)};
      } else {
        to[j * rows + i] = number(0, i * columns + j);
      }
    }
  }
  return finite;
}

template <typename S, typename P>
void Worker<S, P>::Store(size_t plane, int64_t rows, int64_t columns, const S* from, int64_t stride) const {
  P* const re = Result<P>(plane);
  Looks looks(columns);
  for (int64_t i = 0; i < rows; ++i) {
    looks.Pass();
    for (int64_t j = 0; j < columns; ++j) {
      if constexpr (kIsComplex<S>) {
        re[i * columns + j] = static_cast<P>(from[j * stride + i].real());
        Result<P>(plane + 1)[i * columns + j] = static_cast<P>(from[j * stride + i].imag());
      } else {
        re[i * columns + j] = from[j * stride + i];
      }
    }
  }
}

template <typename S, typename P>
void Worker<S, P>::StoreIdentity(size_t plane, int64_t rows, int64_t columns, S* room) const {
  std::fill_n(room, rows * columns, S(0));
  for (int64_t i = 0; i < std::min(rows, columns); ++i) room[i * rows + i] = S(1);
  Store(plane, rows, columns, room, rows);
}

template <typename S, typename P>
void Worker<S, P>::Spoil() const {
  for (size_t plane = 0; plane < shapes_.size(); ++plane) {
    const int64_t count = shapes_[plane].count();
    if (!shapes_[plane].integers) {
      std::fill_n(Result<P>(plane), count, std::numeric_limits<P>::quiet_NaN());
      continue;
    }
    for (int64_t i = 0; i < count; ++i) Result<int32_t>(plane)[i] = static_cast<int32_t>(i);
  }
}

template <typename S, typename P>
bool Worker<S, P>::ReserveWork(const WorkSpace<S, R>& asked) {
  // A float cannot say every size; what LAPACK rounded down is less than this.
  const auto size = [](double said) { return static_cast<int>(std::min(said * (1 + 1e-6) + 1, 2147483647.0)); };
  space_.size = size(static_cast<double>(std::real(*asked.work)));
  space_.real_size = std::max(size(static_cast<double>(*asked.real)), asked.real_size);
  space_.whole_size = std::max(*asked.whole, asked.whole_size);
  if (!work_.Reserve(space_.size) || !real_work_.Reserve(space_.real_size) || !whole_work_.Reserve(space_.whole_size)) {
    return false;
  }
  space_.work = work_.get();
  space_.real = real_work_.get();
  space_.whole = whole_work_.get();
  return true;
}

template <typename S, typename P>
bool Worker<S, P>::Reserve() {
  const int64_t m = m_, n = n_, k = k_;
  S work(1);
  R real(1);
  int whole = 1;
  WorkSpace<S, R> asked{.work = &work, .real = &real, .whole = &whole};
  bool there = true;
  switch (job_.kind) {
    case Kind::kLu: return a_.Reserve(m * n) && pivots_.Reserve(k);
    case Kind::kCholesky: return a_.Reserve(m * n);
    case Kind::kTriangular: return a_.Reserve(OrderOfA() * OrderOfA()) && u_.Reserve(m * n);
    case Kind::kLdlSolve: return a_.Reserve(m * m) && u_.Reserve(m * n) && pivots_.Reserve(m);
    case Kind::kLdl:
      there = a_.Reserve(n * n) && pivots_.Reserve(n);
      if (!there || n == 0) return there;
      Sytrf(job_.has(kHermitian), n_, a_.get(), pivots_.get(), asked);
      break;
    case Kind::kReflectors:
    case Kind::kQr: {
      there = a_.Reserve(m * std::max<int64_t>(n, ColumnsOfQ())) && u_.Reserve(ColumnsOfQ() * n) && tau_.Reserve(k);
      if (!there || k == 0) return there;
      Geqrf(m_, n_, a_.get(), tau_.get(), asked);
      const S first = work;
      FormQ(m_, ColumnsOfQ(), k_, a_.get(), tau_.get(), asked);
      work = std::max(std::real(first), std::real(work));
      break;
    }
    case Kind::kEigh:
      there = a_.Reserve(n * n) && values_.Reserve(n);
      if (!there || n == 0) return there;
      Heevd(Vectors(), 'L', n_, a_.get(), values_.get(), asked);
      break;
    case Kind::kSvd: {
      const bool full = job_.has(kFull);
      const char what = job_.has(kValuesOnly) ? 'N' : full ? 'A' : 'S';
      const int64_t columns = full ? m : k, rows = full ? n : k;
      there = a_.Reserve(m * n) && values_.Reserve(k) && u_.Reserve(what == 'N' ? 1 : m * columns) &&
              v_.Reserve(what == 'N' ? 1 : rows * n);
      if (!there || k == 0) return there;
      Gesdd(what, m_, n_, a_.get(), values_.get(), u_.get(), v_.get(), std::max(1, RowsOfVh()), asked);
      asked.whole_size = static_cast<int>(8 * k);
      // The documentation of cgesdd has the bound.
      const int64_t most = std::max(m, n);
      asked.real_size = static_cast<int>(
          std::min<int64_t>(std::max(5 * k * k + 5 * k, 2 * most * k + 2 * k * k + k) + 7 * k, INT32_MAX));
      if constexpr (!kIsComplex<S>) asked.real_size = 1;
      break;
    }
    case Kind::kEig:
      there =
          a_.Reserve(n * n) && values_.Reserve(n) && more_values_.Reserve(n) && v_.Reserve(n * n) && tau_.Reserve(n);
      if (!there || n == 0) return there;
      if constexpr (kIsComplex<S>) {
        Geev(Vectors(), n_, a_.get(), tau_.get(), nullptr, v_.get(), asked);
      } else {
        Geev(Vectors(), n_, a_.get(), values_.get(), more_values_.get(), v_.get(), asked);
      }
      asked.real_size = static_cast<int>(2 * n);
      break;
  }
  return ReserveWork(asked);
}

template <typename S, typename P>
bool Worker<S, P>::Lu() {
  if (!Load(0, m_, n_, a_.get())) return false;
  if (k_ > 0) Getrf(m_, n_, a_.get(), pivots_.get());  // a pivot of 0 is a result like others
  Store(0, m_, n_, a_.get(), m_);
  int32_t* const pivots = Result<int32_t>(kPlanes);
  int32_t* const order = Result<int32_t>(kPlanes + 1);
  for (int i = 0; i < m_; ++i) order[i] = i;
  for (int i = 0; i < k_; ++i) {
    pivots[i] = pivots_.get()[i] - 1;
    std::swap(order[i], order[pivots[i]]);
  }
  return true;
}

template <typename S, typename P>
bool Worker<S, P>::Qr() {
  S* const a = a_.get();
  if (!Load(0, m_, n_, a)) return false;
  const int columns = ColumnsOfQ();
  if (job_.kind == Kind::kReflectors) {
    if (k_ > 0) Geqrf(m_, n_, a, tau_.get(), space_);
    Store(0, m_, n_, a, m_);
    Store(kPlanes, k_, 1, tau_.get(), k_);
    return true;
  }
  if (k_ == 0) {
    StoreIdentity(0, m_, columns, a);
    StoreIdentity(kPlanes, columns, n_, u_.get());
    return true;
  }
  Geqrf(m_, n_, a, tau_.get(), space_);
  S* const r = u_.get();
  for (int64_t j = 0; j < n_; ++j) {
    for (int64_t i = 0; i < columns; ++i) r[j * columns + i] = i <= j ? a[j * m_ + i] : S(0);
  }
  Store(kPlanes, columns, n_, r, columns);
  FormQ(m_, columns, k_, a, tau_.get(), space_);
  Store(0, m_, columns, a, m_);
  return true;
}

template <typename S, typename P>
bool Worker<S, P>::Eigh() {
  if (!Load(0, n_, n_, a_.get())) return false;
  if (n_ > 0 && Heevd(Vectors(), job_.has(kLower) ? 'L' : 'U', n_, a_.get(), values_.get(), space_) != 0) return false;
  StoreValues(0, values_.get());
  if (!job_.has(kValuesOnly)) Store(1, n_, n_, a_.get(), n_);
  return true;
}

template <typename S, typename P>
bool Worker<S, P>::Svd() {
  if (!Load(0, m_, n_, a_.get())) return false;
  const bool full = job_.has(kFull), only = job_.has(kValuesOnly);
  if (k_ == 0) {
    if (only) return true;
    StoreIdentity(1, m_, ColumnsOfQ(), u_.get());
    StoreIdentity(1 + kPlanes, RowsOfVh(), n_, v_.get());
    return true;
  }
  const char what = only ? 'N' : full ? 'A' : 'S';
  if (Gesdd(what, m_, n_, a_.get(), values_.get(), u_.get(), v_.get(), RowsOfVh(), space_) != 0) return false;
  StoreValues(0, values_.get());
  if (only) return true;
  Store(1, m_, ColumnsOfQ(), u_.get(), m_);
  Store(1 + kPlanes, RowsOfVh(), n_, v_.get(), RowsOfVh());
  return true;
}

template <typename S, typename P>
bool Worker<S, P>::Eig() {
  if (!Load(0, n_, n_, a_.get())) return false;
  if (n_ == 0) return true;
  const S* const v = v_.get();
  const int64_t n = n_;
  if constexpr (kIsComplex<S>) {
    if (Geev(Vectors(), n_, a_.get(), tau_.get(), nullptr, v_.get(), space_) != 0) return false;
    Store(0, n, 1, tau_.get(), n);
    if (!job_.has(kValuesOnly)) Store(2, n, n, v, n);
  } else {
    if (Geev(Vectors(), n_, a_.get(), values_.get(), more_values_.get(), v_.get(), space_) != 0) return false;
    StoreValues(0, values_.get());
    StoreValues(1, more_values_.get());
    if (job_.has(kValuesOnly)) return true;
    // Two columns are the parts of the first vector of a pair, whose other one is its conjugate.
    for (int64_t j = 0; j < n; ++j) {
      const bool first = more_values_.get()[j] > 0, second = more_values_.get()[j] < 0;
      for (int64_t i = 0; i < n; ++i) {
        const R re = v[(second ? j - 1 : j) * n + i];
        const R im = first ? v[(j + 1) * n + i] : second ? -v[j * n + i] : R(0);
        Result<P>(2)[i * n + j] = re;
        Result<P>(3)[i * n + j] = im;
      }
    }
  }
  return true;
}

template <typename S, typename P>
bool Worker<S, P>::Cholesky() {
  const bool lower = job_.has(kLower);
  if (!LoadTriangle(lower)) return false;
  if (n_ > 0 && Potrf(lower ? 'L' : 'U', n_, a_.get()) != 0) return false;
  Store(0, n_, n_, a_.get(), n_);
  return true;
}

template <typename S, typename P>
bool Worker<S, P>::LoadTriangle(bool lower) {
  S* const a = a_.get();
  const int64_t n = n_;
  (void)Load(0, n, n, a);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < n; ++i) {
      if (lower ? i < j : i > j) a[j * n + i] = S(0);
    }
  }
  for (int64_t i = 0; i < n * n; ++i) {
    if (!std::isfinite(std::real(a[i])) || !std::isfinite(std::imag(a[i]))) return false;
  }
  return true;
}

template <typename S, typename P>
bool Worker<S, P>::Triangular() {
  const int64_t order = OrderOfA();
  (void)Load(0, order, order, a_.get());
  (void)Load(kPlanes, m_, n_, u_.get());
  if (k_ > 0) {
    const char op = job_.has(kConjugated) ? 'C' : job_.has(kTransposed) ? 'T' : 'N';
    Trsm(job_.has(kRight) ? 'R' : 'L', job_.has(kLower) ? 'L' : 'U', op, job_.has(kUnit) ? 'U' : 'N', m_, n_, a_.get(),
         u_.get());
  }
  Store(0, m_, n_, u_.get(), m_);
  return true;
}

template <typename S, typename P>
bool Worker<S, P>::Ldl() {
  if (!LoadTriangle(true)) return false;
  if (n_ > 0) Sytrf(job_.has(kHermitian), n_, a_.get(), pivots_.get(), space_);  // d without an inverse is a result
  Store(0, n_, n_, a_.get(), n_);
  std::copy_n(pivots_.get(), n_, Result<int32_t>(kPlanes));
  return true;
}

// A pivot above 0 is the row of a block of one; two that are equal and below 0, of a block of two rows.
template <typename S, typename P>
bool Worker<S, P>::LoadPivots(size_t plane) {
  const P* const given = static_cast<const P*>(operands_[plane]) + member_ * m_;
  int* const pivots = pivots_.get();
  for (int i = 0; i < m_; ++i) {
    const P size = std::abs(given[i]);
    if (!(size >= 1 && size <= static_cast<P>(m_))) return false;
    pivots[i] = static_cast<int>(given[i]);
  }
  for (int i = 0; i < m_; ++i) {
    if (pivots[i] > 0) continue;
    if (i + 1 == m_ || pivots[i + 1] != pivots[i]) return false;
    ++i;
  }
  return true;
}

template <typename S, typename P>
bool Worker<S, P>::LdlSolve() {
  (void)Load(0, m_, m_, a_.get());
  (void)Load(kPlanes, m_, n_, u_.get());
  if (!LoadPivots(2 * kPlanes)) return false;
  if (k_ > 0) Sytrs(job_.has(kHermitian), m_, n_, a_.get(), pivots_.get(), u_.get());
  Store(0, m_, n_, u_.get(), m_);
  return true;
}

template <typename S, typename P>
absl::Status RunTyped(const Job& job, std::span<const void* const> operands, std::span<void* const> results,
                      ThreadPool* pool) {
  std::atomic<bool> starved{false};
  const auto share = [&](int64_t begin, int64_t end, int) {
    Worker<S, P> worker(job, operands, results);
    if (!worker.Reserve()) {
      starved = true;
      return;
    }
    for (int64_t i = begin; i < end && !LaunchEnds(); ++i) worker.Compute(i);
  };
  if (pool == nullptr || job.batch == 1) {
    if (job.batch > 0) share(0, job.batch, 0);
  } else {
    pool->ParallelRanges(job.batch, share);
  }
  if (!starved) return absl::OkStatus();
  return absl::ResourceExhaustedError("no memory for the work space of a matrix decomposition");
}

}  // namespace

int64_t Shape::count() const {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  return count;
}

std::vector<Shape> Results(const Job& job) {
  const int64_t m = job.rows, n = job.columns, k = std::min(m, n);
  const int64_t columns = job.has(kFull) ? m : k, rows = job.has(kFull) ? n : k;
  std::vector<Shape> shapes;
  const auto matrix = [&](int64_t r, int64_t c) { shapes.insert(shapes.end(), job.complex ? 2 : 1, Shape{{r, c}}); };
  switch (job.kind) {
    case Kind::kLu:
      matrix(m, n);
      shapes.push_back({{k}, true});
      shapes.push_back({{m}, true});
      break;
    case Kind::kQr:
      matrix(m, columns);
      matrix(columns, n);
      break;
    case Kind::kEigh:
      shapes.push_back({{n}});
      if (!job.has(kValuesOnly)) matrix(n, n);
      break;
    case Kind::kSvd:
      shapes.push_back({{k}});
      if (job.has(kValuesOnly)) break;
      matrix(m, columns);
      matrix(rows, n);
      break;
    case Kind::kEig:
      shapes.insert(shapes.end(), 2, Shape{{n}});
      if (!job.has(kValuesOnly)) shapes.insert(shapes.end(), 2, Shape{{n, n}});
      break;
    case Kind::kCholesky:
    case Kind::kTriangular:
    case Kind::kLdlSolve: matrix(m, n); break;
    case Kind::kLdl:
      matrix(n, n);
      shapes.push_back({{n}, true});
      break;
    case Kind::kReflectors:
      matrix(m, n);
      shapes.insert(shapes.end(), job.complex ? 2 : 1, Shape{{k}});
      break;
  }
  return shapes;
}

absl::Status Run(const Job& job, std::span<const void* const> operands, std::span<void* const> results,
                 ThreadPool* pool) {
  // LAPACK of c64 would be a quarter of all of it.
  if (job.complex) {
    return job.wide ? RunTyped<C64, double>(job, operands, results, pool)
                    : RunTyped<C64, float>(job, operands, results, pool);
  }
  return job.wide ? RunTyped<double, double>(job, operands, results, pool)
                  : RunTyped<float, float>(job, operands, results, pool);
}

}  // namespace weft::linalg
