package frame

import (
	"fmt"
	"math/rand/v2"
	"net/textproto"
	"strings"
	"testing"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2/hpack"
)

// x/net's decoder reads the Encoder's output, for all earlier blocks and table sizes.
func FuzzEncoder(f *testing.F) {
	f.Add(uint64(1), uint32(4096))
	f.Add(uint64(2), uint32(0))
	f.Add(uint64(3), uint32(100))
	f.Fuzz(func(t *testing.T, seed uint64, small uint32) {
		r := rand.New(rand.NewPCG(seed, 0))
		e := NewEncoder()
		var got []hpack.HeaderField
		d := hpack.NewDecoder(4096, func(f hpack.HeaderField) { got = append(got, f) })
		for block := range 50 {
			if block == 20 || block == 35 {
				size := small % 5000
				if block == 35 {
					size = 3000
				}
				e.SetTableSize(0)
				e.SetTableSize(size)
				d.SetAllowedMaxDynamicTableSize(min(size, 4096))
			}
			e.begin()
			got = got[:0]
			var want []hpack.HeaderField
			for range r.IntN(40) {
				field := hpack.HeaderField{Name: fmt.Sprint("x-", r.IntN(30)), Value: strings.Repeat("v", r.IntN(4)*r.IntN(400))}
				switch r.IntN(4) {
				case 0:
					known := staticFields[r.IntN(len(staticFields))]
					field.Name, field.Value = known[0], known[1]
				case 1:
					field.Name, field.Value = "content-type", fmt.Sprint("text/", r.IntN(3))
				}
				if field.Sensitive = r.IntN(5) == 0; field.Sensitive {
					e.WriteNeverIndexed(field.Name, field.Value)
				} else {
					e.WriteField(field.Name, field.Value)
				}
				want = append(want, field)
			}
			if _, err := d.Write(e.block); err != nil {
				t.Fatal(err)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("block %d: got %v, want %v", block, got, want)
			}
		}
	})
}

func TestEncoderIndexesRepeatedFields(t *testing.T) {
	e := NewEncoder()
	e.begin()
	e.WriteField("x-some-name", "some value")
	first := len(e.block)
	e.begin()
	e.WriteField("x-some-name", "some value")
	if len(e.block) != 1 || first < 20 {
		t.Errorf("first block = %d bytes, second = %d, want at least 20 and 1", first, len(e.block))
	}
	e.begin()
	e.WriteField(":status", "200")
	if len(e.block) != 1 {
		t.Errorf("field of the static table = %d bytes, want 1", len(e.block))
	}
	newest := e.newest
	e.WriteNeverIndexed("audit-id", "1")
	e.WriteField("x-long", strings.Repeat("x", 3000))
	if e.newest != newest {
		t.Errorf("newest entry = %d, want %d: sensitive and long fields stay out of the table", e.newest, newest)
	}
}

// The numbers of entries wrap around at 2^32.
func TestEncoderEntryNumbersWrapAround(t *testing.T) {
	e := NewEncoder()
	e.newest = 1<<32 - 3
	var got []hpack.HeaderField
	d := hpack.NewDecoder(4096, func(f hpack.HeaderField) { got = append(got, f) })
	for range 3 {
		for i := range 10 {
			e.begin()
			got = got[:0]
			e.WriteField("x", fmt.Sprint(i))
			if _, err := d.Write(e.block); err != nil {
				t.Fatal(err)
			}
			if len(got) != 1 || got[0].Value != fmt.Sprint(i) {
				t.Fatalf("decoded fields = %v, want %d", got, i)
			}
		}
	}
}

// The static table equals x/net's.
func TestStaticTableMatchesXNet(t *testing.T) {
	var got []hpack.HeaderField
	d := hpack.NewDecoder(4096, func(f hpack.HeaderField) { got = append(got, f) })
	for i := range staticFields {
		if _, err := d.Write([]byte{0x80 | byte(i+1)}); err != nil {
			t.Fatal(err)
		}
		if f := got[i]; f.Name != staticFields[i][0] || f.Value != staticFields[i][1] {
			t.Errorf("static entry %d = %v, want %v", i+1, f, staticFields[i])
		}
	}
}

// Names equal net/http's.
func FuzzNames(f *testing.F) {
	for _, name := range append(commonNames, "X-Remote-Extra-Scopes", "x-ü", "", "a b", "Trailer:X", ":status", "\u212aey") {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		lower, ok := LowerName(name)
		if want := httpguts.ValidHeaderFieldName(name); ok != want {
			t.Fatalf("LowerName(%q): valid = %v, want %v", name, ok, want)
		}
		if !ok {
			return
		}
		if want := strings.ToLower(name); lower != want {
			t.Errorf("LowerName(%q) = %q, want %q", name, lower, want)
		}
		if got, want := CanonicalName(lower), textproto.CanonicalMIMEHeaderKey(name); got != want {
			t.Errorf("CanonicalName of %q = %q, want %q", name, got, want)
		}
	})
}
