# The metadata messages of a checkpoint file (container "TCK"). Field numbers are the wire contract: add at the end, never
# change a type, a number or a default. docs/formats.md says what stands around these messages.
@0xb6c7e0a1d2f35849;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("weft::schema");

enum DType {
  invalid @0; bool8 @1;
  u1 @2; u2 @3; u4 @4; u8 @5; u16 @6; u32 @7; u64 @8;
  i2 @9; i4 @10; i8 @11; i16 @12; i32 @13; i64 @14;
  f16 @15; bf16 @16; f32 @17; f64 @18; c64 @19; c128 @20;
  f8e4m3fn @21; f8e5m2 @22; f8e4m3fnuz @23; f8e5m2fnuz @24; f8e8m0fnu @25;
  f4e2m1fn @26; f6e2m3fn @27; f6e3m2fn @28;
  f8e3m4 @29; f8e4m3 @30; f8e4m3b11fnuz @31;
}

struct Kv {
  key @0 :Text;
  value @1 :Data;
}

struct Shard {
  checkpointUuid @0 :Data;  # 16 bytes
  rank @1 :UInt32;
  world @2 :UInt32;
}

struct Header {
  major @0 :UInt16;
  minor @1 :UInt16;
  required @2 :UInt64;  # feature bits a reader must know; equal to the prologue's
  optional @3 :UInt64;
  uuid @4 :Data;        # 16 bytes, equal to the prologue's
  producer @5 :Text;
  createdUnixNs @6 :Int64;
  step @7 :Int64;
  chunkBytes @8 :UInt32;
  payloadAlignLog2 @9 :UInt8;
  user @10 :List(Kv);
  shard @11 :Shard;     # absent: the only file
}

# A tree is its nodes in preorder: the children of a container follow it, each with its own descendants.
enum KeyKind { none @0; text @1; int @2; bool @3; noneKey @4; }

struct Ext {
  typeName @0 :Text;
  version @1 :UInt32;
  payload @2 :Data;
}

struct Node {
  parent @0 :UInt32;    # index of the container; the root is its own parent
  keyKind @1 :KeyKind;
  keyText @2 :Text;
  keyInt @3 :Int64;
  union {
    none @4 :Void;
    dict @5 :UInt32;    # number of children
    list @6 :UInt32;
    tuple @7 :UInt32;
    tensor @8 :UInt32;  # Tensor.id
    alias @9 :UInt32;   # index of an earlier node that is no alias
    bool @10 :Bool;
    int64 @11 :Int64;
    float64 @12 :Float64;
    text @13 :Text;
    bytes @14 :Data;
    bigInt @15 :Text;
    ext @16 :Ext;
  }
}

struct Tree {
  nodes @0 :List(Node);
  first @1 :UInt32;     # index of nodes[0] in the whole tree
}

struct Box {
  globalShape @0 :List(UInt64);
  start @1 :List(UInt64);
  replica @2 :UInt32;
}

struct Tensor {
  id @0 :UInt32;
  name @1 :Text;        # path of the leaf: keys joined by ".", "." and "\" inside a key escaped by "\"
  dtype @2 :DType;      # as stored
  logical @3 :DType;    # as the user sees it
  shape @4 :List(UInt64);
  rawBytes @5 :UInt64;
  box @6 :Box;          # absent: the whole tensor
  inlineData @7 :Data;  # tensors of at most 256 bytes
  hash @8 :UInt64;      # XXH3-64 of inlineData
  flags @9 :UInt32;
  quant @10 :Ext;
}

# Frame kind 3: tensors whose bytes follow in Chunk frames or in the next Pack.
struct Tensors {
  tensors @0 :List(Tensor);
}

enum Codec { none @0; zstd @1; zero @2; }
enum Filter { none @0; byteShuffle @1; }

struct PackMember {
  tensorId @0 :UInt32;
  offset @1 :UInt32;
  length @2 :UInt32;
}

struct Chunk {
  tensorId @0 :UInt32;
  ordinal @1 :UInt32;
  rawOffset @2 :UInt64;
  rawLen @3 :UInt32;
  storedLen @4 :UInt32;
  codec @5 :Codec;
  filter @6 :Filter;
  elemBytes @7 :UInt8;
  rawHash @8 :UInt64;
  storedHash @9 :UInt64;
  members @10 :List(PackMember);  # only in a Pack
}

struct ChunkRef {
  fileOffset @0 :UInt64;  # of the payload
  storedLen @1 :UInt32;
  rawLen @2 :UInt32;      # of the whole payload; a pack's members share one payload
  storedHash @3 :UInt64;
  rawHash @4 :UInt64;
  innerOffset @5 :UInt32; # where the tensor starts in a pack
  codec @6 :Codec;
  filter @7 :Filter;
  file @8 :UInt32;        # 0: this file
}

struct IndexEntry {
  tensor @0 :Tensor;
  chunks @1 :List(ChunkRef);
}

struct IndexPage {
  entries @0 :List(IndexEntry);  # by name, bytewise ascending across all pages
}

struct PageRef {
  firstName @0 :Text;
  offset @1 :UInt64;  # of the frame
  length @2 :UInt32;  # of the frame
  hash @3 :UInt64;    # XXH3-64 of the whole frame
  count @4 :UInt32;
}

struct Footer {
  pages @0 :List(PageRef);
  treeOffset @1 :UInt64;
  treeFrames @2 :UInt32;
  treeNodes @10 :UInt32;
  tensors @3 :UInt64;
  chunks @4 :UInt64;  # Chunk and Pack frames
  rawBytes @5 :UInt64;
  rootHash @6 :Data;  # XXH3-128 of the 32-byte prefixes of all frames before the footer, low half first
  rootKind @7 :UInt8; # 0: XXH3-128
  signature @8 :Data;
  previousFooter @9 :UInt64;
}
