package enginetest

// Promise is what Portico's own server does for clients and the library cannot be brought to. The table in docs/http-engines.md
// is made of all of them, and a test in package engine holds both servers to what is said here.
type Promise struct {
	// Name is what Portico's own server does.
	Name string
	// Attack is the row of docs/security-tests.md or the name by which it is known.
	Attack string
	// Instead is what the library does.
	Instead string
	// Source is where that is said, or done.
	Source string
}

func (p Promise) String() string { return p.Name }

// What the library cannot promise.
var (
	LineEnds = Promise{
		"Lines of HTTP/1.1 end with CRLF and are not folded",
		"A19, CVE-2025-22871 and its kin",
		"A bare LF ends a line of a head, of trailers and the last line of a chunked body, and a folded line is joined to the one before. Handlers see the header as it came of that",
		"net/textproto `Reader.ReadLine` and `ReadMIMEHeader`, net/http/internal/chunked.go",
	}
	OneLength = Promise{
		"A request has one Content-Length or a Transfer-Encoding, and a request of HTTP/1.0 no Transfer-Encoding",
		"A19, CL.TE and TE.CL",
		"The coding counts and the length is removed; equal lengths are one; a coding of HTTP/1.0 is removed, and what was the body is the next request. What is sent to a backend has one length again, so only a proxy before this one can be misled",
		"net/http transfer.go `parseTransferEncoding` (golang/go#12785) and `fixLength`",
	}
	PlainChunks = Promise{
		"A chunk's size is plain digits, extensions have no control characters, trailers' names are tokens",
		"A19",
		"Blanks after a size and control characters in an extension are skipped, and so is a blank between the name of a trailer and its colon",
		"net/http/internal/chunked.go `readChunkLine`",
	}
	HostOfEveryRequest = Promise{
		"Every request of HTTP/1.1 has a Host that can be one, with CONNECT and an absolute target too",
		"A18",
		"CONNECT needs no Host, and beside an absolute target any bytes that a Host may have are taken; the host of the target counts",
		"net/http server.go `conn.readRequest`, request.go `readRequest`",
	}
	StatusForEveryRefusal = Promise{
		"What the server itself refuses is answered with a metav1.Status over HTTP/1.1",
		"none: kubectl prints what it is told",
		"400, 431, 501 and 505 for what net/http itself refuses have a line of plain text; what is refused by the rule table has a Status",
		"net/http server.go `conn.serve`",
	}
	LengthOverHTTP2 = Promise{
		"A body of HTTP/2 that is shorter than its Content-Length resets its stream, as does a length that is none",
		"A19, CVE-2021-21409",
		"The handler's last Read fails, and its answer is sent; a length that is none, or two, is answered 400",
		"golang.org/x/net/http2 server.go `stream.endStream`",
	}
	FloodsOfFrames = Promise{
		"A connection of HTTP/2 ends when its client sends frames that carry nothing, or provokes resets, more often than the rate allows",
		"CVE-2019-9512 to 9518, CVE-2025-8671; D2 and D4",
		"What waits to be sent is bounded (10,000 frames) and so are the handlers that run; frames are read for as long as they come",
		"golang.org/x/net/http2 server.go `maxQueuedControlFrames`",
	}
	FloodsOfHeaders = Promise{
		"A client that goes on sending headers beyond the limit loses its connection",
		"D15",
		"Each is answered 431, without end",
		"golang.org/x/net/http2 server.go `handleHeaderListTooLong`",
	}
	TwoGoAways = Promise{
		"A client of HTTP/2 is warned by a GOAWAY before one says which stream is the last",
		"none: requests on the way when a server stops (RFC 9113, 6.8)",
		"One GOAWAY names the last stream that was seen. Requests that were on the way are told to be unprocessed, and clients ask again elsewhere",
		"golang.org/x/net/http2 server.go `serverConn.startGracefulShutdownInternal`",
	}
	HeaderTimeOverHTTP2 = Promise{
		"A header block of HTTP/2 that has begun is whole within 10 s",
		"slow headers; D5",
		"It ends with the connection, whose pings are not answered meanwhile: 45 s",
		"net/http has no such setting: ReadHeaderTimeout is for HTTP/1",
	}
	EmptyLineBefore = Promise{
		"An empty line before a request of HTTP/1.1 is skipped",
		"none: old clients send one after a body (RFC 9112, 2.2)",
		"400",
		"net/http request.go `readRequest`",
	}
)

// CookieCrumbs is about the number of fields.
var CookieCrumbs = Promise{
	"Each crumb of a cookie counts as a field of a request over HTTP/2, of which there are 500",
	"A40, CVE-2026-47774",
	"They are one field when they are counted, bounded by the size of the head",
	"golang.org/x/net/http2 server.go `serverConn.newWriterAndRequest`",
}

// ShortOfMemory is about what the server does by itself.
var ShortOfMemory = Promise{
	"When memory is short, the connections that hold most are cut, and streams are refused by REFUSED_STREAM",
	"D18",
	"Requests are answered 503 and idle connections closed, and nothing is cut",
	"net/http tells nobody what a connection holds, and refuses streams only for their number",
}

// Promises are all of them, in the order of the table.
func Promises() []Promise {
	return []Promise{
		LineEnds, OneLength, PlainChunks, HostOfEveryRequest, LengthOverHTTP2, FloodsOfFrames, FloodsOfHeaders, HeaderTimeOverHTTP2,
		StatusForEveryRefusal, TwoGoAways, EmptyLineBefore, CookieCrumbs, ShortOfMemory,
	}
}
