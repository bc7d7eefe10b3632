# Options, versions and the compile and link flags that every layer shares.

option(WEFT_BUILD_TESTS "Build the test programs" ON)
option(WEFT_BUILD_PROGRAMS "Build examples/ and benchmarks/" ON)
option(WEFT_SYSTEM_DEPS "Link the system's shared libraries where they are recent enough" OFF)
option(WEFT_PCH "Precompile the common standard and Abseil headers" OFF)
option(WEFT_WERROR "Warnings are errors" OFF)
option(WEFT_CTEST_PER_CASE "One ctest entry per test case (else one per program)" ON)
set(WEFT_TEST_KINDS "" CACHE STRING "Which folders of tests/ become programs, a regular expression; empty: all")
set(WEFT_SANITIZE "" CACHE STRING "Empty, address (with undefined) or thread")
set_property(CACHE WEFT_SANITIZE PROPERTY STRINGS "" address thread)

# The C ABI's version decides the SONAME; the release version never does (docs/abi.md, rule 3).
set(WEFT_ABI_MAJOR 1)
set(WEFT_RELEASE_VERSION 0.1.0)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 99)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib/layers")
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
# Debug has no debug information: it doubles build time and is one -DCMAKE_CXX_FLAGS_DEBUG away.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG" CACHE STRING "" FORCE)
set(CMAKE_C_FLAGS_RELEASE "-O2 -DNDEBUG" CACHE STRING "" FORCE)

add_library(weft_flags INTERFACE)
# f32 results must not depend on the compiler's taste: no contraction, no fast-math. -fno-math-errno
# changes no value and lets sqrt be one instruction. The baseline is plain x86-64 everywhere; code for
# newer machines is chosen at run time. GCC 12's flow warnings misfire inside Abseil's inlined containers: those are left
# to clang, which builds everything in the sanitizer presets and checks there that what a lock guards is touched under it.
target_compile_options(weft_flags INTERFACE
  -fvisibility=hidden $<$<COMPILE_LANGUAGE:CXX>:-fvisibility-inlines-hidden>
  -ffunction-sections -fdata-sections -fno-math-errno -ffp-contract=off -fno-semantic-interposition
  -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-gnu-unique;-Wno-psabi;-Wno-array-bounds;-Wno-stringop-overflow;-Wno-restrict;-Wno-maybe-uninitialized;-Wno-uninitialized;-Wno-dangling-pointer>
  $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wthread-safety;-Werror=thread-safety>
  $<$<BOOL:${WEFT_WERROR}>:-Werror>)
# What ships names no folder of the machine that built it; `set substitute-path` tells a debugger where the sources are.
set(WEFT_SOURCE_NAME "/usr/src/weft-${WEFT_RELEASE_VERSION}")
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  target_compile_options(weft_flags INTERFACE
    "-ffile-prefix-map=${PROJECT_SOURCE_DIR}=${WEFT_SOURCE_NAME}" "-ffile-prefix-map=${PROJECT_BINARY_DIR}=${WEFT_SOURCE_NAME}/build")
endif()
target_include_directories(weft_flags INTERFACE
  "${PROJECT_SOURCE_DIR}"
  "${PROJECT_SOURCE_DIR}/include/c_api" "${PROJECT_BINARY_DIR}/generated")
target_link_libraries(weft_flags INTERFACE Threads::Threads ${CMAKE_DL_LIBS})
# Compiled programs on disk are of one build (src/compiler/build_id.cc), and not every compiler asks its linker for this.
target_link_options(weft_flags INTERFACE -Wl,--build-id=sha1)

if(WEFT_SANITIZE STREQUAL "address")
  # vptr checks need typeinfo of LLVM's classes that its archives do not carry. Enums of C callers may hold any number;
  # compilers here take that as said (no -fstrict-enums), and the C API answers with an error.
  set(WEFT_SANITIZE_FLAGS -fsanitize=address,undefined -fno-sanitize=vptr,function,enum
      -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
elseif(WEFT_SANITIZE STREQUAL "thread")
  set(WEFT_SANITIZE_FLAGS -fsanitize=thread -fno-omit-frame-pointer)
elseif(WEFT_SANITIZE)
  message(FATAL_ERROR "WEFT_SANITIZE is '${WEFT_SANITIZE}'; it can be empty, address or thread")
endif()
if(WEFT_SANITIZE)
  target_compile_options(weft_flags INTERFACE ${WEFT_SANITIZE_FLAGS})
  target_link_options(weft_flags INTERFACE ${WEFT_SANITIZE_FLAGS})
  target_compile_definitions(weft_flags INTERFACE WEFT_SANITIZED=1)
endif()

# lld links the 28 MB library in half a second where bfd takes fifteen. Debian names it ld.lld-19, which
# neither compiler looks for, so a folder of our own holds it under the usual name.
find_program(WEFT_LLD NAMES ld.lld-19 ld.lld REQUIRED)
file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/tools")
file(CREATE_LINK "${WEFT_LLD}" "${PROJECT_BINARY_DIR}/tools/ld.lld" SYMBOLIC)
add_link_options(-fuse-ld=lld "-B${PROJECT_BINARY_DIR}/tools" -Wl,--gc-sections)
