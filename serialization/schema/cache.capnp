# The metadata message of a compile-cache entry. The payload (one zstd frame) holds the canonical program and then the
# sections, back to back.
@0xd1a94c2be0837f65;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("weft::schema");

struct CacheSection {
  name @0 :Text;
  length @1 :UInt64;
}

struct CacheMeta {
  canonicalLen @0 :UInt64;
  sections @1 :List(CacheSection);
  backend @2 :Text;
  compilerVersion @3 :Text;
  target @4 :Text;
  options @5 :Text;        # the key's other parts in readable form
  compileMicros @6 :UInt64;
  createdUnixNs @7 :Int64;
  graphOps @8 :UInt32;
}
