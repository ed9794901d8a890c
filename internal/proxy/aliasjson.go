package proxy

import (
	"encoding/json"
	"errors"
	"io"
)

// place is what a value is in a response of the API: where an apiVersion is to be rewritten, and where it belongs to somebody
// else, as in the spec of an object or in its managed fields.
type place uint8

const (
	elsewhere   place = iota
	anEvent           // of a watch
	anObject          // an object, a list or a Table
	listItems         // the items of a list
	tableRows         // the rows of a Table
	tableRow          // one of them
	innerObject       // an item of a list, or the object of a row
)

// below is the place of the value of a field.
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

// element is the place of the values in an array.
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
	// maxField is the longest name of a field that is looked at, as it is written: apiVersion with every letter escaped.
	maxField = 6 * len("apiVersion")
	// maxDepth is the deepest nesting that Kubernetes' decoders read.
	maxDepth = 10_000
)

var errNotJSON = errors.New("the response is not JSON")

// jsonRewriter rewrites apiVersion from one value to another in JSON that it reads. Every other byte stays as it is. It holds no
// more than what it has read and not returned yet, the name of a field, or the value of an apiVersion.
type jsonRewriter struct {
	source   io.Reader
	from, to string
	top      place
	buffer   []byte
	pending  []byte // ready to be returned
	out      []byte // the storage of pending
	err      error

	stack []level
	// inString: the next byte is within a string. escaped: it follows a backslash. What the string is, is next.
	inString, escaped bool
	reading           reading
	field             []byte // the name of a field as far as it was read, with its quotes
	value             []byte // the value of an apiVersion, likewise, which is not in out yet
}

// reading is what a string is.
type reading uint8

const (
	aString reading = iota
	aField
	aVersion
)

// level is an object or an array that is open.
type level struct {
	at       place
	isObject bool
	wantName bool  // the next string is the name of a field
	value    place // of the next value
	version  bool  // which is that of apiVersion
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
		if err != nil { // a body that breaks off is passed on as far as it came
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
	begin := 0 // what is before it is in out, or held in value
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

// beginString says what the string is that begins.
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

// inText takes a byte of a string.
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
		if ends || len(j.value) > 6*len(j.from)+2 { // longer than any way to write it
			j.versionEnds()
			j.reading = aString
		}
	}
	if ends {
		j.inString = false
	}
}

// nameEnds finds out what the value is that follows the name of a field.
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
