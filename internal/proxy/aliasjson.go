package proxy

import (
	"encoding/json"
	"errors"
	"io"
)

// place is the position of a value in an API response. It distinguishes an apiVersion that must be rewritten from one
// inside the object, such as in its spec or in its managed fields.
type place uint8

const (
	elsewhere   place = iota
	anEvent           // a watch event
	anObject          // an object, a list or a Table
	listItems         // the items of a list
	tableRows         // the rows of a Table
	tableRow          // one of them
	innerObject       // a row
)

// below returns the place of the value of the given field.
func (p place) below(field string) place {
	switch {
	case p == anEvent && field == "object":
		return anObject
	case p == anObject && field == "items":
		return listItems
	case p == anObject && field == "rows":
		return tableRows
	case p == tableRow && field == "object":
		return innerObject
	}
	return elsewhere
}

// element returns the place of the elements of an array.
func (p place) element() place {
	switch p {
	case listItems:
		return innerObject
	case tableRows:
		return tableRow
	}
	return elsewhere
}

func (p place) hasVersion() bool { return p == anObject || p == innerObject }

const (
	// maxField is the longest field name that is compared, in its encoded form: apiVersion with every letter escaped.
	maxField = 6 * len("apiVersion")
	// maxDepth is the deepest nesting that the Kubernetes decoders accept.
	maxDepth = 10_000
)

var errNotJSON = errors.New("the response is not JSON")

// jsonRewriter replaces one value of apiVersion with another while it reads JSON. All other bytes stay unchanged. It
// buffers only the bytes not yet returned, the current field name, or the current apiVersion value.
type jsonRewriter struct {
	source   io.Reader
	from, to string
	top      place
	buffer   []byte
	pending  []byte // not yet returned to the reader
	out      []byte // the storage of pending
	err      error

	stack []level
	// inString: the next byte is within a string. escaped: the previous byte is a backslash. reading is the role of the
	// string.
	inString, escaped bool
	reading           reading
	field             []byte // the field name read so far, with its quotes
	value             []byte // the apiVersion value read so far, with its quotes; not yet in out
}

// reading is the role of a string.
type reading uint8

const (
	aString reading = iota
	aField
	aVersion
)

// level is an open object or array.
type level struct {
	at       place
	isObject bool
	wantName bool  // the next string is a field name
	value    place // of the next value
	version  bool  // the next value belongs to apiVersion
}

func newJSONRewriter(source io.Reader, from, to string, watch bool) *jsonRewriter {
	j := &jsonRewriter{source: source, from: from, to: to, top: anObject, buffer: make([]byte, 16<<10)}
	if watch {
		j.top = anEvent
	}
	return j
}

func (j *jsonRewriter) Read(b []byte) (int, error) {
	for len(j.pending) == 0 {
		if j.err != nil {
			return 0, j.err
		}
		n, err := j.source.Read(j.buffer)
		j.out = j.out[:0]
		if bad := j.feed(j.buffer[:n]); bad != nil {
			err = bad
		}
		if err != nil { // relay a truncated body up to the point where it ends
			j.out = append(j.out, j.value...)
			j.value = nil
		}
		j.pending, j.err = j.out, err
	}
	n := copy(b, j.pending)
	j.pending = j.pending[n:]
	return n, nil
}

func (j *jsonRewriter) feed(b []byte) error {
	begin := 0 // bytes before begin are in out, or held in value
	for i := 0; i < len(b); i++ {
		c := b[i]
		if j.inString {
			if j.reading == aVersion {
				begin = i + 1
			}
			j.inText(c)
			continue
		}
		switch c {
		case '"':
			if j.beginString() == aVersion {
				j.out = append(j.out, b[begin:i]...)
				begin = i + 1
			}
		case '{', '[':
			if len(j.stack) >= maxDepth {
				return errNotJSON
			}
			j.open(c == '{')
		case '}', ']':
			if len(j.stack) == 0 {
				return errNotJSON
			}
			j.stack = j.stack[:len(j.stack)-1]
		case ':':
			j.nameEnds()
		case ',':
			if n := len(j.stack); n > 0 && j.stack[n-1].isObject {
				j.stack[n-1].wantName = true
			}
		}
	}
	if begin < len(b) {
		j.out = append(j.out, b[begin:]...)
	}
	return nil
}

func (j *jsonRewriter) open(object bool) {
	at := j.top
	if n := len(j.stack); n > 0 {
		at = j.stack[n-1].value
	}
	l := level{at: at, isObject: object, wantName: object}
	if !object {
		l.value = at.element()
	}
	j.stack = append(j.stack, l)
}

// beginString determines the role of the string that begins.
func (j *jsonRewriter) beginString() reading {
	j.inString, j.reading = true, aString
	if n := len(j.stack); n > 0 {
		switch l := &j.stack[n-1]; {
		case l.wantName:
			j.reading, j.field = aField, append(j.field[:0], '"')
		case l.isObject && l.version:
			j.reading, j.value = aVersion, append(j.value[:0], '"')
		}
	}
	return j.reading
}

// inText consumes one byte of a string.
func (j *jsonRewriter) inText(c byte) {
	ends := c == '"' && !j.escaped
	j.escaped = c == '\\' && !j.escaped
	switch j.reading {
	case aField:
		if len(j.field) <= maxField+2 {
			j.field = append(j.field, c)
		}
	case aVersion:
		j.value = append(j.value, c)
		if ends || len(j.value) > 6*len(j.from)+2 { // longer than any encoding of j.from
			j.versionEnds()
			j.reading = aString
		}
	}
	if ends {
		j.inString = false
	}
}

// nameEnds determines the place of the value that follows a field name.
func (j *jsonRewriter) nameEnds() {
	n := len(j.stack)
	if n == 0 || !j.stack[n-1].isObject {
		return
	}
	l := &j.stack[n-1]
	l.wantName, l.value, l.version = false, elsewhere, false
	if l.at == elsewhere {
		return
	}
	var name string
	if json.Unmarshal(j.field, &name) == nil {
		l.value, l.version = l.at.below(name), l.at.hasVersion() && name == "apiVersion"
	}
}

// versionEnds writes the value of an apiVersion.
func (j *jsonRewriter) versionEnds() {
	var is string
	if json.Unmarshal(j.value, &is) == nil && is == j.from {
		j.out = append(append(append(j.out, '"'), j.to...), '"')
	} else {
		j.out = append(j.out, j.value...)
	}
	j.value = j.value[:0]
}
