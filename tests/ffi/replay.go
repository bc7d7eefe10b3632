// Replays vectors.json through the generated declarations for Go. usage: replay LIBRARY VECTORS FOLDER, or replay layout
// (vectors.py says what the forms mean). Prints `ok NAME` or `failed NAME: reason` for each vector.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"
	weft "weft_ffi"
)

type object = map[string]any

type counter struct{ calls, userData int64 }

type vector struct {
	folder    string
	registers map[string]reflect.Value // pointers to what out parameters wrote
	counters  map[string]*counter
	keep      []any
}

type failure string

func fail(format string, args ...any) { panic(failure(fmt.Sprintf(format, args...))) }

func must(what string, wanted, got any) {
	if wanted != got {
		fail("%s is %v, not %v", what, got, wanted)
	}
}

func integer(text string) uint64 {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return uint64(n)
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || float64(int64(f)) != f {
			fail("%s is no integer", text)
		}
		return uint64(int64(f))
	}
	return n
}

// number is a JSON number, a constant's name or {"u64": digits} as the bits of an integer.
func number(a any) uint64 {
	switch a := a.(type) {
	case json.Number:
		return integer(a.String())
	case string:
		n, known := Constants[a]
		if !known {
			fail("there is no constant %s", a)
		}
		return n
	case object:
		return integer(a["u64"].(string))
	}
	fail("%v is no number", a)
	return 0
}

func set(to reflect.Value, bits uint64) {
	switch to.Kind() {
	case reflect.Int32, reflect.Int64:
		to.SetInt(int64(bits))
	default:
		to.SetUint(bits)
	}
}

var elements = map[string]reflect.Type{"f32": reflect.TypeOf(float32(0)), "f64": reflect.TypeOf(float64(0)),
	"i32": reflect.TypeOf(int32(0)), "i64": reflect.TypeOf(int64(0)), "u8": reflect.TypeOf(byte(0))}

// register is the place that holds a register's value.
func (v *vector) register(name string) reflect.Value {
	if array, at, found := strings.Cut(strings.TrimSuffix(name, "]"), "["); found {
		return v.registers[array].Index(int(integer(at)))
	}
	held, known := v.registers[name]
	if !known {
		fail("there is no register %s", name)
	}
	return held.Elem()
}

func (v *vector) callback(a object) uintptr {
	name := a["callback"].(string)
	if v.counters[name] == nil {
		v.counters[name] = &counter{}
	}
	c := v.counters[name]
	count := func(userData uintptr) { c.calls++; c.userData += int64(userData) }
	if a["type"] == "weft_log_fn" {
		return purego.NewCallback(func(userData uintptr, _ weft.LogLevel, _ *byte, _ uintptr) { count(userData) })
	}
	return purego.NewCallback(count)
}

// pointer gives address and type of memory that the form describes, or false if it describes none.
func (v *vector) pointer(a object, t reflect.Type) (reflect.Value, bool) {
	var made reflect.Value // a slice or a pointer
	if a["struct"] != nil {
		made = reflect.New(t.Elem())
		if init, known := weft.Functions[a["struct"].(string)+"_init"]; known {
			(*init.(*func(unsafe.Pointer, uintptr)))(made.UnsafePointer(), t.Elem().Size())
		}
		v.fill(made.Elem(), a["fields"].(object))
		if a["out"] != nil {
			v.registers[a["out"].(string)] = made
		}
	} else if a["structs"] != nil {
		items := a["items"].([]any)
		made = reflect.MakeSlice(reflect.SliceOf(t.Elem()), len(items), len(items))
		for i, item := range items {
			v.fill(made.Index(i), item.(object))
		}
	} else if a["text"] != nil {
		made = reflect.ValueOf([]byte(strings.ReplaceAll(a["text"].(string), "{tmp}", v.folder) + "\x00"))
	} else if a["handles"] != nil {
		items := a["handles"].([]any)
		made = reflect.MakeSlice(reflect.SliceOf(t.Elem()), len(items), len(items))
		for i, item := range items {
			made.Index(i).Set(v.argument(item, t.Elem()))
		}
	} else if a["out"] != nil {
		made = reflect.New(t.Elem())
		v.registers[a["out"].(string)] = made
	} else if a["outs"] != nil {
		n := int(number(a["count"]))
		made = reflect.MakeSlice(reflect.SliceOf(t.Elem()), n, n)
		v.registers[a["outs"].(string)] = made
	} else {
		for kind, element := range elements {
			if values, found := a[kind].([]any); found {
				made = reflect.MakeSlice(reflect.SliceOf(element), len(values), len(values)+1)
				for i, x := range values {
					made.Index(i).Set(v.argument(x, element))
				}
			}
		}
	}
	if made.IsValid() {
		v.keep = append(v.keep, made.Interface())
	}
	return made, made.IsValid()
}

func (v *vector) fill(to reflect.Value, fields object) {
	for name, value := range fields {
		field := to.FieldByName(FieldNames[name])
		if !field.IsValid() {
			fail("%s has no field %s", to.Type(), name)
		}
		if bits, isList := value.([]any); isList {
			sum := uint64(0)
			for _, bit := range bits {
				sum += number(bit)
			}
			field.SetUint(sum)
		} else {
			field.Set(v.argument(value, field.Type()))
		}
	}
}

func (v *vector) argument(a any, t reflect.Type) reflect.Value {
	if a == nil {
		return reflect.Zero(t)
	}
	if name, is := a.(string); is && strings.HasPrefix(name, "$") {
		return v.register(name[1:]).Convert(t)
	}
	out := reflect.New(t).Elem()
	if form, is := a.(object); is {
		if form["callback"] != nil {
			out.SetUint(uint64(v.callback(form)))
			return out
		}
		if form["address"] != nil {
			out.SetUint(number(form["address"]))
			return out
		}
		if made, found := v.pointer(form, t); found {
			return reflect.NewAt(t, unsafe.Pointer(&[]unsafe.Pointer{made.UnsafePointer()}[0])).Elem()
		}
	}
	if t.Kind() == reflect.Float64 || t.Kind() == reflect.Float32 {
		x, err := a.(json.Number).Float64()
		if err != nil {
			fail("%v is no number", a)
		}
		out.SetFloat(x)
		return out
	}
	set(out, number(a))
	return out
}

func (v *vector) error(wanted any, given weft.Error) {
	if given == 0 {
		if wanted != nil {
			fail("there is no error, but wanted is %v", wanted)
		}
		return
	}
	var length uintptr
	message := weft.Text(weft.ErrorMessage(given, &length), length)
	code := weft.ErrorCode(given)
	weft.ErrorRelease(given)
	message = strings.ReplaceAll(message, v.folder, "{tmp}")
	if wanted == nil {
		fail("error %d: %s", code, message)
	}
	must("error", wanted.(object)["message"], message)
	must("code", weft.Code(number(wanted.(object)["code"])), code)
}

func textAt(data *byte) string {
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(data), n)) != 0 {
		n++
	}
	return weft.Text(data, uintptr(n))
}

func (v *vector) returned(wanted any, given reflect.Value) {
	form, isForm := wanted.(object)
	switch {
	case wanted == nil:
		must("what is returned", true, given.IsZero())
	case isForm && form["reg"] != nil:
		held := reflect.New(given.Type())
		held.Elem().Set(given)
		v.registers[form["reg"].(string)] = held
	case isForm && form["not_null"] != nil:
		must("what is returned is NULL", false, given.IsZero())
	case isForm:
		must("what is returned", form["text"], textAt(given.Interface().(*byte)))
	default:
		must("what is returned", number(wanted), given.Convert(reflect.TypeOf(uint64(0))).Uint())
	}
}

func (v *vector) blob(name string) string {
	held := v.register(name).Interface().(weft.Blob)
	return weft.Text((*byte)(weft.BlobData(held)), weft.BlobSize(held))
}

func (v *vector) tensor(name, dtype string) reflect.Value {
	held, element := v.register(name).Interface().(weft.Tensor), elements[dtype]
	var size uint64
	v.error(nil, weft.TensorSize(held, &size))
	n := int(size) / int(element.Size())
	data := reflect.MakeSlice(reflect.SliceOf(element), n, n+1)
	v.error(nil, weft.TensorToHost(held, data.UnsafePointer(), uintptr(size)))
	return data
}

func (v *vector) same(what string, wanted []any, got reflect.Value) {
	for i, x := range wanted {
		must(fmt.Sprintf("%s[%d]", what, i), v.argument(x, got.Type().Elem()).Interface(), got.Index(i).Interface())
	}
}

func (v *vector) expect(e object) {
	if name, is := e["counter"].(string); is {
		c := v.counters[name]
		if c == nil {
			c = &counter{}
		}
		if e["at_least"] != nil {
			must("calls of "+name, true, c.calls >= int64(number(e["at_least"])))
			return
		}
		must("calls of "+name, int64(number(e["calls"])), c.calls)
		must("user_data of "+name, int64(number(e["user_data"])), c.userData)
		return
	}
	if name, is := e["blob"].(string); is {
		if part, is := e["has"].(string); is {
			must("the blob has "+part, true, strings.Contains(v.blob(name), part))
			return
		}
		must("the blob", e["is"], v.blob(name))
		return
	}
	if name, is := e["tensor"].(string); is {
		v.same("tensor "+name, e["is"].([]any), v.tensor(name, e["dtype"].(string)))
		return
	}
	name := e["reg"].(string)
	if list, is := e["is"].([]any); is {
		v.same(name, list, v.registers[name])
		return
	}
	held := v.register(name)
	holder := held
	if field, is := e["field"].(string); is {
		held = holder.FieldByName(FieldNames[field])
	}
	if length, is := e["length"].(string); is {
		n := v.registers[length]
		if e["field"] != nil {
			n = holder.FieldByName(FieldNames[length])
		} else {
			n = n.Elem()
		}
		must(name, e["is"], weft.Text((*byte)(held.UnsafePointer()), uintptr(n.Uint())))
		return
	}
	must(name, v.argument(e["is"], held.Type()).Interface(), held.Interface())
}

func (v *vector) call(c object) {
	function := reflect.ValueOf(weft.Functions[c["call"].(string)]).Elem()
	given := c["args"].([]any)
	args := make([]reflect.Value, len(given))
	for i, a := range given {
		args[i] = v.argument(a, function.Type().In(i))
	}
	results := function.Call(args)
	wanted, returns := c["returns"]
	if len(results) == 1 {
		if err, is := results[0].Interface().(weft.Error); is && !returns {
			v.error(c["error"], err)
		} else {
			v.returned(wanted, results[0])
		}
	}
	expected, _ := c["expect"].([]any)
	for _, e := range expected {
		v.expect(e.(object))
	}
}

func (v *vector) run(calls []any) (reason string) {
	at := ""
	defer func() {
		if said := recover(); said != nil {
			reason = fmt.Sprintf("%s: %v", at, said)
		}
	}()
	for _, c := range calls {
		at = c.(object)["call"].(string)
		v.call(c.(object))
	}
	runtime.KeepAlive(v)
	return ""
}

func main() {
	if os.Args[1] == "layout" {
		Layout()
		return
	}
	if err := weft.Load(os.Args[1]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	text, err := os.ReadFile(os.Args[2])
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var document struct {
		Vectors []object `json:"vectors"`
	}
	if err := decoder.Decode(&document); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for _, entry := range document.Vectors {
		v := &vector{folder: os.Args[3], registers: map[string]reflect.Value{}, counters: map[string]*counter{}}
		if reason := v.run(entry["calls"].([]any)); reason != "" {
			fmt.Printf("failed %s: %s\n", entry["name"], reason)
		} else {
			fmt.Printf("ok %s\n", entry["name"])
		}
	}
}
