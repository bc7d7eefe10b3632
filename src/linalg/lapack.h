// The routines of LAPACK and BLAS that this room calls, in Fortran's convention: everything behind a pointer, matrices by
// columns, the lengths of strings behind all arguments. Each overload gives LAPACK's info.
#pragma once

#include <complex>
#include <cstddef>

namespace weft::linalg {

using C64 = std::complex<double>;

extern "C" {
#define WEFT_LAPACK_DECLARE(p, S)                                                                                      \
  void p##getrf_(const int* m, const int* n, S* a, const int* lda, int* pivots, int* info);                            \
  void p##geqrf_(const int* m, const int* n, S* a, const int* lda, S* tau, S* work, const int* lwork, int* info);      \
  void p##potrf_(const char* uplo, const int* n, S* a, const int* lda, int* info, size_t);                             \
  void p##sytrf_(const char* uplo, const int* n, S* a, const int* lda, int* pivots, S* work, const int* lwork,         \
                 int* info, size_t);                                                                                   \
  void p##sytrs_(const char* uplo, const int* n, const int* nrhs, const S* a, const int* lda, const int* pivots, S* b, \
                 const int* ldb, int* info, size_t);                                                                   \
  void p##trsm_(const char* side, const char* uplo, const char* trans, const char* diag, const int* m, const int* n,   \
                const S* alpha, const S* a, const int* lda, S* b, const int* ldb, size_t, size_t, size_t, size_t);
WEFT_LAPACK_DECLARE(s, float)
WEFT_LAPACK_DECLARE(d, double)
WEFT_LAPACK_DECLARE(z, C64)
#undef WEFT_LAPACK_DECLARE

#define WEFT_LAPACK_FORM_Q(name, S)                                                                                  \
  void name(const int* m, const int* n, const int* k, S* a, const int* lda, const S* tau, S* work, const int* lwork, \
            int* info);
WEFT_LAPACK_FORM_Q(sorgqr_, float)
WEFT_LAPACK_FORM_Q(dorgqr_, double)
WEFT_LAPACK_FORM_Q(zungqr_, C64)
#undef WEFT_LAPACK_FORM_Q

#define WEFT_LAPACK_REAL(p, S)                                                                                   \
  void p##syevd_(const char* jobz, const char* uplo, const int* n, S* a, const int* lda, S* w, S* work,          \
                 const int* lwork, int* iwork, const int* liwork, int* info, size_t, size_t);                    \
  void p##gesdd_(const char* jobz, const int* m, const int* n, S* a, const int* lda, S* s, S* u, const int* ldu, \
                 S* vt, const int* ldvt, S* work, const int* lwork, int* iwork, int* info, size_t);              \
  void p##geev_(const char* jobvl, const char* jobvr, const int* n, S* a, const int* lda, S* wr, S* wi, S* vl,   \
                const int* ldvl, S* vr, const int* ldvr, S* work, const int* lwork, int* info, size_t, size_t);
WEFT_LAPACK_REAL(s, float)
WEFT_LAPACK_REAL(d, double)
#undef WEFT_LAPACK_REAL

#define WEFT_LAPACK_COMPLEX(p, S, R)                                                                              \
  void p##heevd_(const char* jobz, const char* uplo, const int* n, S* a, const int* lda, R* w, S* work,           \
                 const int* lwork, R* rwork, const int* lrwork, int* iwork, const int* liwork, int* info, size_t, \
                 size_t);                                                                                         \
  void p##gesdd_(const char* jobz, const int* m, const int* n, S* a, const int* lda, R* s, S* u, const int* ldu,  \
                 S* vt, const int* ldvt, S* work, const int* lwork, R* rwork, int* iwork, int* info, size_t);     \
  void p##geev_(const char* jobvl, const char* jobvr, const int* n, S* a, const int* lda, S* w, S* vl,            \
                const int* ldvl, S* vr, const int* ldvr, S* work, const int* lwork, R* rwork, int* info, size_t,  \
                size_t);
WEFT_LAPACK_COMPLEX(z, C64, double)
#undef WEFT_LAPACK_COMPLEX
void zhetrf_(const char* uplo, const int* n, C64* a, const int* lda, int* pivots, C64* work, const int* lwork,
             int* info, size_t);
void zhetrs_(const char* uplo, const int* n, const int* nrhs, const C64* a, const int* lda, const int* pivots, C64* b,
             const int* ldb, int* info, size_t);
}

// The room of a call, as the routines count it; `real` and `whole` only where a routine has such.
template <typename S, typename R>
struct WorkSpace {
  S* work = nullptr;
  int size = -1;  // asks the routine how much it wants
  R* real = nullptr;
  int real_size = -1;
  int* whole = nullptr;
  int whole_size = -1;
};

#define WEFT_LAPACK_CALLS(p, form, S, R)                                                               \
  inline int Getrf(int m, int n, S* a, int* pivots) {                                                  \
    int info = 0;                                                                                      \
    p##getrf_(&m, &n, a, &m, pivots, &info);                                                           \
    return info;                                                                                       \
  }                                                                                                    \
  inline int Geqrf(int m, int n, S* a, S* tau, const WorkSpace<S, R>& space) {                         \
    int info = 0;                                                                                      \
    p##geqrf_(&m, &n, a, &m, tau, space.work, &space.size, &info);                                     \
    return info;                                                                                       \
  }                                                                                                    \
  inline int FormQ(int m, int n, int k, S* a, const S* tau, const WorkSpace<S, R>& space) {            \
    int info = 0;                                                                                      \
    form(&m, &n, &k, a, &m, tau, space.work, &space.size, &info);                                      \
    return info;                                                                                       \
  }                                                                                                    \
  inline int Potrf(char triangle, int n, S* a) {                                                       \
    int info = 0;                                                                                      \
    p##potrf_(&triangle, &n, a, &n, &info, 1);                                                         \
    return info;                                                                                       \
  }                                                                                                    \
  inline void Trsm(char side, char triangle, char op, char diagonal, int m, int n, const S* a, S* b) { \
    const S one(1);                                                                                    \
    const int order = side == 'L' ? m : n;                                                             \
    p##trsm_(&side, &triangle, &op, &diagonal, &m, &n, &one, a, &order, b, &m, 1, 1, 1, 1);            \
  }
WEFT_LAPACK_CALLS(s, sorgqr_, float, float)
WEFT_LAPACK_CALLS(d, dorgqr_, double, double)
WEFT_LAPACK_CALLS(z, zungqr_, C64, double)
#undef WEFT_LAPACK_CALLS

// Symmetric or hermitian matrices, by their lower triangle: a = l d l^T, and the solution by that; real ones are both.
#define WEFT_LAPACK_INDEFINITE(p, herm, S, R)                                                        \
  inline int Sytrf(bool hermitian, int n, S* a, int* pivots, const WorkSpace<S, R>& space) {         \
    int info = 0;                                                                                    \
    (hermitian ? herm##trf_ : p##sytrf_)("L", &n, a, &n, pivots, space.work, &space.size, &info, 1); \
    return info;                                                                                     \
  }                                                                                                  \
  inline int Sytrs(bool hermitian, int n, int columns, const S* a, const int* pivots, S* b) {        \
    int info = 0;                                                                                    \
    (hermitian ? herm##trs_ : p##sytrs_)("L", &n, &columns, a, &n, pivots, b, &n, &info, 1);         \
    return info;                                                                                     \
  }
WEFT_LAPACK_INDEFINITE(s, ssy, float, float)
WEFT_LAPACK_INDEFINITE(d, dsy, double, double)
WEFT_LAPACK_INDEFINITE(z, zhe, C64, double)
#undef WEFT_LAPACK_INDEFINITE

// Eigenvalues of a symmetric matrix, whose vectors take its place; singular values; eigenvalues of any matrix, the complex
// ones of a real matrix as two rows of numbers.
#define WEFT_LAPACK_REAL_CALLS(p, S)                                                                                \
  inline int Heevd(char job, char triangle, int n, S* a, S* w, const WorkSpace<S, S>& space) {                      \
    int info = 0;                                                                                                   \
    p##syevd_(&job, &triangle, &n, a, &n, w, space.work, &space.size, space.whole, &space.whole_size, &info, 1, 1); \
    return info;                                                                                                    \
  }                                                                                                                 \
  inline int Gesdd(char job, int m, int n, S* a, S* s, S* u, S* vt, int rows_vt, const WorkSpace<S, S>& space) {    \
    int info = 0;                                                                                                   \
    p##gesdd_(&job, &m, &n, a, &m, s, u, &m, vt, &rows_vt, space.work, &space.size, space.whole, &info, 1);         \
    return info;                                                                                                    \
  }                                                                                                                 \
  inline int Geev(char job, int n, S* a, S* w, S* wi, S* v, const WorkSpace<S, S>& space) {                         \
    int info = 0;                                                                                                   \
    const char none = 'N';                                                                                          \
    p##geev_(&none, &job, &n, a, &n, w, wi, nullptr, &n, v, &n, space.work, &space.size, &info, 1, 1);              \
    return info;                                                                                                    \
  }
WEFT_LAPACK_REAL_CALLS(s, float)
WEFT_LAPACK_REAL_CALLS(d, double)
#undef WEFT_LAPACK_REAL_CALLS

#define WEFT_LAPACK_COMPLEX_CALLS(p, S, R)                                                                          \
  inline int Heevd(char job, char triangle, int n, S* a, R* w, const WorkSpace<S, R>& space) {                      \
    int info = 0;                                                                                                   \
    p##heevd_(&job, &triangle, &n, a, &n, w, space.work, &space.size, space.real, &space.real_size, space.whole,    \
              &space.whole_size, &info, 1, 1);                                                                      \
    return info;                                                                                                    \
  }                                                                                                                 \
  inline int Gesdd(char job, int m, int n, S* a, R* s, S* u, S* vt, int rows_vt, const WorkSpace<S, R>& space) {    \
    int info = 0;                                                                                                   \
    p##gesdd_(&job, &m, &n, a, &m, s, u, &m, vt, &rows_vt, space.work, &space.size, space.real, space.whole, &info, \
              1);                                                                                                   \
    return info;                                                                                                    \
  }                                                                                                                 \
  inline int Geev(char job, int n, S* a, S* w, S* /*wi*/, S* v, const WorkSpace<S, R>& space) {                     \
    int info = 0;                                                                                                   \
    const char none = 'N';                                                                                          \
    p##geev_(&none, &job, &n, a, &n, w, nullptr, &n, v, &n, space.work, &space.size, space.real, &info, 1, 1);      \
    return info;                                                                                                    \
  }
WEFT_LAPACK_COMPLEX_CALLS(z, C64, double)
#undef WEFT_LAPACK_COMPLEX_CALLS

}  // namespace weft::linalg
