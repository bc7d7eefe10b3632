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

struct Header {
  major @0 :UInt16;
  minor @1 :UInt16;
  required @2 :UInt64;  # feature bits a reader must know; equal to the prologue's
  optional @3 :UInt64;  # feature bits that a reader may pass over
  uuid @4 :Data;        # 16 bytes, equal to the prologue's
  producer @5 :Text;
  createdUnixNs @6 :Int64;
  step @7 :Int64;
  user @8 :List(Kv);
}

# A tree is its nodes in preorder: the children of a container follow it, each with its own descendants.
enum KeyKind { none @0; text @1; }

struct Node {
  parent @0 :UInt32;    # index of the container; the root is its own parent
  keyKind @1 :KeyKind;  # text below a dict, none elsewhere
  keyText @2 :Text;
  union {
    none @3 :Void;
    dict @4 :UInt32;    # number of children
    list @5 :UInt32;
    tuple @6 :UInt32;
    tensor @7 :UInt32;  # the tensor's id
    alias @8 :UInt32;   # index of a node that is no alias; it may come later
    bool @9 :Bool;
    int64 @10 :Int64;
    float64 @11 :Float64;
    text @12 :Text;
    bytes @13 :Data;
  }
}

struct Tree {
  nodes @0 :List(Node);
  first @1 :UInt32;     # index of nodes[0] in the whole tree
}

struct Tensor {
  id @0 :UInt32;
  dtype @1 :DType;      # as stored
  logical @2 :DType;    # as the user sees it
  shape @3 :List(UInt64);
}

# Frame kind 4: the payload is the whole of one tensor.
struct Payload {
  tensor @0 :Tensor;
}

# Frame kind 3, directly behind a tensor's data.
struct Sums {
  tensor @0 :UInt32;
  sums @1 :List(UInt64);  # XXH3-64 of each 4 MiB of the payload (docs/formats.md: of more in tensors past 64 GiB)
}

# Frame kind 10: the payload is a part of a tensor, as long as what one checksum covers.
struct Part {
  tensor @0 :Tensor;
  index @1 :UInt32;  # of the tensor's parts
  codec @2 :UInt16;  # 0: as it is; 1: zstd, bytes shuffled
  sum @3 :UInt64;    # XXH3-64 of the payload
}

struct PartPlace {
  payload @0 :UInt64;  # where the payload starts in its file
  bytes @1 :UInt32;    # its length
  codec @2 :UInt16;
  file @3 :UInt16;     # 0: this one; n: number n - 1 of the footer's bases
  sum @4 :UInt64;      # XXH3-64 of the payload
}

# Frame kind 11, behind the parts of a tensor that are in this file.
struct Parts {
  tensor @0 :Tensor;
  parts @1 :List(PartPlace);  # all of them, in order
  sums @2 :List(UInt64);      # as in Sums: of the tensor's bytes
}

struct PackMember {
  tensor @0 :Tensor;
  offset @1 :UInt32;  # in the payload
}

# Frame kind 5: the payload is several tensors.
struct Pack {
  members @0 :List(PackMember);
  sum @1 :UInt64;  # XXH3-64 of the payload
}

struct IndexEntry {
  id @0 :UInt32;
  dtype @1 :DType;
  logical @2 :DType;
  name @3 :Text;         # path of the leaf: keys joined by ".", "." and "\" inside a key escaped by "\"
  shape @4 :List(UInt64);
  payload @5 :UInt64;    # where the payload starts in the file; 0: the bytes are `inside`
  packBytes @6 :UInt32;  # length of the pack's payload; 0: the payload is the tensor alone
  inner @7 :UInt32;      # where the tensor starts in its pack; of a tensor in parts: the length of their frame of kind 11
  packSum @8 :UInt64;    # the pack's sum; of a tensor in parts: XXH3-64 of that frame, and payload is where it starts
  inside @9 :Data;       # tensors of at most 256 bytes
  sums @10 :List(UInt64);  # as in Sums; empty unless the payload is the tensor alone
}

struct IndexPage {
  entries @0 :List(IndexEntry);  # by name, bytewise ascending across all pages
}

struct PageRef {
  firstName @0 :Text;
  offset @1 :UInt64;  # of the frame
  hash @2 :UInt64;    # XXH3-64 of the whole frame
  length @3 :UInt32;  # of the frame
  count @4 :UInt32;
}

# A file beside this one that parts are taken from.
struct Base {
  name @0 :Text;
  uuid @1 :Data;  # 16 bytes, as in its prologue
}

struct Footer {
  pages @0 :List(PageRef);
  treeOffset @1 :UInt64;
  treeFrames @2 :UInt32;
  treeNodes @3 :UInt32;
  tensors @4 :UInt64;
  payloads @5 :UInt64;  # frames of data, packs and parts
  rawBytes @6 :UInt64;  # of all tensors
  rootLow @7 :UInt64;   # XXH3-128 of the 32-byte prefixes of all frames before the footer
  rootHigh @8 :UInt64;
  bases @9 :List(Base);  # feature bit 2
}
