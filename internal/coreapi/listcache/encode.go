package listcache

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/bits"
	"net/http"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// form is the part of an object that a list contains, and its encoding.
type form struct {
	kind formKind
	// version is the version of the metadata type to which objects are reduced.
	version string
}

type formKind int

const (
	whole    formKind = iota // JSON of the entire object
	metadata                 // JSON of its PartialObjectMetadata, also used for rows of tables
	rows                     // a row of a table: only its metadata is cached, because cells contain ages
	wholeProtobuf
	metadataProtobuf
)

// object is an element of a list.
type object struct {
	runtime.Object
	// row is the row of the object in a table.
	row *metav1.TableRow
}

// objects returns the taken objects by index. body is the response into which they are inserted.
func (t *taken) objects(ctx context.Context, f form, body []byte) (listed, error) {
	if f.kind != rows {
		return listed{t.length, func(i int) object { return object{Object: t.items(i)} }}, nil
	}
	if t.source.Table == nil {
		return listed{}, errors.New("no table")
	}
	table, err := t.source.Table(ctx, t.list)
	if err != nil {
		return listed{}, err
	}
	// The columns of a custom resource may have changed since k8s.io/apiserver read them.
	var around metav1.Table
	if err := json.Unmarshal(body, &around); err != nil {
		return listed{}, err
	}
	if !slices.Equal(table.ColumnDefinitions, around.ColumnDefinitions) {
		return listed{}, errors.New("other columns")
	}
	return listed{len(table.Rows), func(i int) object { return object{table.Rows[i].Object.Object, &table.Rows[i]} }}, nil
}

// listed contains the objects of a list.
type listed struct {
	length int
	at     func(i int) object
}

// batch is the number of objects per lookup.
const batch = 256

// jsonArray writes the elements of an array.
func (c *Cache) jsonArray(out *output, storage any, of listed, f form) {
	known := f
	if f.kind == rows {
		known.kind = metadata
	}
	t, keep := c.table(tableKey{storage, known})
	encoder := newEncoder(known)
	cells := newJSONEncoder()
	var ids [batch]identity
	var found [batch][]byte
	for from := 0; from < of.length; from += batch {
		n := min(batch, of.length-from)
		for i := range n {
			ids[i] = identify(of.at(from + i).Object)
		}
		clear(found[:])
		t.find(ids[:n], found[:n])
		for i := range n {
			o := of.at(from + i)
			if from+i > 0 {
				out.write(comma)
			}
			if o.row != nil {
				out.write(cells.row(o.row))
				out.write(objectKey)
			}
			data := found[i]
			if data == nil {
				data = encoder.encode(o.Object)
				if keep && ids[i].address != nil {
					data = bytes.Clone(data)
					t.keep(ids[i], data)
				}
			}
			out.write(data)
			if o.row != nil {
				out.write(closing)
			}
		}
		if out.err != nil {
			return
		}
	}
}

var openArray, closeArray, comma, objectKey, closing = []byte("["), []byte("]"), []byte(","), []byte(`,"object":`), []byte("}")

// encoder encodes objects in one form. Its result is valid until the next call.
type encoder struct {
	json    *jsonEncoder
	form    form
	version schema.GroupVersion
}

func newEncoder(f form) *encoder {
	gv, _ := schema.ParseGroupVersion(f.version) // it was parsed before
	return &encoder{json: newJSONEncoder(), form: f, version: gv}
}

// encode aborts the response if an object cannot be encoded, although the storage could decode it.
func (e *encoder) encode(obj runtime.Object) []byte {
	switch e.form.kind {
	case metadata:
		return e.json.encode(e.partial(obj))
	case wholeProtobuf:
		return marshal(obj)
	case metadataProtobuf:
		return marshal(e.partial(obj))
	}
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return e.json.encode(u.Object)
	}
	return e.json.encode(obj)
}

// partial returns the same PartialObjectMetadata as k8s.io/apiserver.
func (e *encoder) partial(obj runtime.Object) *metav1.PartialObjectMetadata {
	m, err := meta.Accessor(obj)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	partial := meta.AsPartialObjectMetadata(m)
	partial.GetObjectKind().SetGroupVersionKind(e.version.WithKind("PartialObjectMetadata"))
	return partial
}

// jsonEncoder encodes values one at a time into one buffer.
type jsonEncoder struct {
	buffer  bytes.Buffer
	encoder *json.Encoder
}

func newJSONEncoder() *jsonEncoder {
	e := &jsonEncoder{}
	e.encoder = json.NewEncoder(&e.buffer)
	return e
}

func (e *jsonEncoder) encode(v any) []byte {
	e.buffer.Reset()
	if err := e.encoder.Encode(v); err != nil {
		panic(http.ErrAbortHandler)
	}
	return e.buffer.Bytes()[:e.buffer.Len()-1] // without the line feed
}

// row returns the encoding of a row up to its object.
func (e *jsonEncoder) row(r *metav1.TableRow) []byte {
	data := e.encode(struct {
		Cells      []any                      `json:"cells"`
		Conditions []metav1.TableRowCondition `json:"conditions,omitempty"`
	}{r.Cells, r.Conditions})
	return data[:len(data)-1]
}

// message is an object that has a protobuf form.
type message interface {
	Size() int
	Marshal() ([]byte, error)
}

func marshal(obj any) []byte {
	data, err := obj.(message).Marshal()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	return data
}

var (
	// protobufMagic is the prefix of every object in protobuf.
	protobufMagic = []byte{0x6b, 0x38, 0x73, 0x00}
	// itemsTag is the tag of field 2 of every list, of wire type bytes.
	itemsTag byte = 0x12
)

func (c *Cache) answerProtobuf(w http.ResponseWriter, r *http.Request, f *frame) bool {
	var unknown runtime.Unknown
	if !bytes.HasPrefix(f.body, protobufMagic) || unknown.Unmarshal(f.body[len(protobufMagic):]) != nil {
		return false
	}
	form, ok := formOf(unknown.APIVersion, unknown.Kind)
	switch {
	case !ok:
		return false
	case form.kind == whole:
		if _, ok := f.taken.items(0).(message); !ok {
			return false
		}
		form.kind = wholeProtobuf
	case form.kind == metadata:
		form.kind = metadataProtobuf
	default:
		return false
	}
	t, keep := c.table(tableKey{f.taken.source.Storage, form})
	encoder := newEncoder(form)
	// The total length comes first. Objects that cannot be cached are encoded again later, so that not all encodings are in
	// memory.
	found, sizes, size := make([][]byte, f.taken.length), make([]int, f.taken.length), len(unknown.Raw)
	ids := make([]identity, f.taken.length)
	for i := range ids {
		ids[i] = identify(f.taken.items(i))
	}
	t.find(ids, found)
	for i := range found {
		switch {
		case found[i] != nil:
			sizes[i] = len(found[i])
		case keep && ids[i].address != nil:
			found[i] = encoder.encode(f.taken.items(i))
			t.keep(ids[i], found[i])
			sizes[i] = len(found[i])
		case form.kind == metadataProtobuf:
			sizes[i] = encoder.partial(f.taken.items(i)).Size()
		default:
			sizes[i] = f.taken.items(i).(message).Size()
		}
		size += 1 + varintSize(sizes[i]) + sizes[i]
	}
	out := c.buffers.output(w, r)
	defer out.release()
	out.write(protobufMagic)
	_, _ = unknown.MarshalToWriter(out, size, func(io.Writer) (int, error) {
		out.write(unknown.Raw)
		var head [16]byte
		for i, data := range found {
			if out.err != nil {
				return 0, out.err
			}
			if data == nil {
				data = encoder.encode(f.taken.items(i))
			}
			out.write(appendVarint(append(head[:0], itemsTag), sizes[i]))
			out.write(data)
		}
		return size, out.err
	}) // out stores the error
	out.close()
	return true
}

func varintSize(n int) int { return (bits.Len64(uint64(n)|1) + 6) / 7 }

func appendVarint(to []byte, n int) []byte {
	for n >= 1<<7 {
		to = append(to, byte(n)|0x80)
		n >>= 7
	}
	return append(to, byte(n))
}
