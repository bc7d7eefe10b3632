# A compiled program of the CPU backend: a section of a compile-cache entry, which has the checksums. cpu_program.h says
# what the fields mean. Lists of entries are stored flat and refer to each other by position.
@0xb7c5e2d90f3a4861;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("weft::schema");

struct CpuValue {
  dtype @0 :UInt32;
  dims @1 :List(Int64);
}

struct CpuBufferRef {
  place @0 :UInt8;
  index @1 :UInt32;
  offset @2 :Int64;
}

struct CpuEntry {
  type @0 :UInt8;
  code @1 :UInt32;
  buffers @2 :List(CpuBufferRef);
  params @3 :List(Int64);
  tasks @4 :Int64;
  cost @5 :Int64;
  scratchBytes @6 :Int64;
  epilogue @7 :Int32 = -1;
  epilogueBuffers @8 :UInt32;
  epilogueParams @9 :List(Int64);
  epilogueConsumes @10 :Int32 = -1;
  origins @11 :List(UInt32);
  writes @12 :Int64;
  reads @13 :Int64;
  flops @14 :Int64 = -1;
}

struct CpuEntryList {
  entries @0 :List(CpuEntry);
}

struct CpuControl {
  lists @0 :List(UInt32);
  trips @1 :Int64 = -1;
}

struct CpuObject {
  bytes @0 :Data;
  keys @1 :List(Data);
  symbols @2 :List(Data);
}

struct CpuProgram {
  fingerprint @0 :Data;
  isa @1 :Data;
  arguments @2 :List(CpuValue);
  results @3 :List(CpuValue);
  donor @4 :List(Int32);
  words @5 :UInt32;
  loops @6 :List(Data);
  hostKernels @7 :List(Data);
  lists @8 :List(CpuEntryList);
  controls @9 :List(CpuControl);
  originOps @10 :List(Data);
  arenaBytes @11 :Int64;
  carried @12 :List(Int64);
  constants @13 :Data;
  objects @14 :List(CpuObject);
  microKernels @15 :Data;
}
