package enginetest

// Promise is a guarantee that Portico's server gives to clients and net/http cannot be configured to give. The table in
// internal/httpengine/README.md is generated from all promises, and a test in package engine checks both servers against them.
type Promise struct {
	// Name describes the guarantee of Portico's server.
	Name string
	// Attack is the row of e2e/attacks/security-tests.md or the name of the attack.
	Attack string
	// Instead is the behaviour of net/http.
	Instead string
	// Source is the origin of Instead: documentation or code.
	Source string
}

func (p Promise) String() string { return p.Name }

// Guarantees that net/http cannot give.
var (
	LineEnds = Promise{
		"Lines of HTTP/1.1 end with CRLF and are not folded",
		"A19, CVE-2025-22871 and similar ones",
		"Accepts a bare LF as a line end in headers, in trailers and in the last line of a chunked body, and joins folded lines. Handlers see the resulting header",
		"net/textproto `Reader.ReadLine` and `ReadMIMEHeader`, net/http/internal/chunked.go",
	}
	OneLength = Promise{
		"A request has one Content-Length or a Transfer-Encoding, and a request of HTTP/1.0 no Transfer-Encoding",
		"A19, CL.TE and TE.CL",
		"With both, it uses the Transfer-Encoding and removes the Content-Length. It merges equal Content-Lengths. It removes a Transfer-Encoding from an HTTP/1.0 request, and reads the body as the next request. The request to the backend has one length again, so only a proxy in front of this one can be misled",
		"net/http transfer.go `parseTransferEncoding` (golang/go#12785) and `fixLength`",
	}
	PlainChunks = Promise{
		"A chunk's size is plain digits, extensions have no control characters, trailers' names are tokens",
		"A19",
		"Skips spaces after a size, control characters in an extension, and a space between the name of a trailer and its colon",
		"net/http/internal/chunked.go `readChunkLine`",
	}
	HostOfEveryRequest = Promise{
		"Every HTTP/1.1 request has a valid Host, also CONNECT requests and requests with an absolute target",
		"A18",
		"Accepts CONNECT without a Host. With an absolute target, it checks only the bytes of the Host, and uses the host of the target",
		"net/http server.go `conn.readRequest`, request.go `readRequest`",
	}
	StatusForEveryRefusal = Promise{
		"Over HTTP/2, requests whose header is too large are answered with a metav1.Status",
		"none: kubectl prints the message of the response",
		"The 431 response has a line of HTML",
		"golang.org/x/net/http2 server.go `handleHeaderListTooLong`",
	}
	LengthOverHTTP2 = Promise{
		"An HTTP/2 body that is shorter than its Content-Length, or an invalid Content-Length, resets the stream",
		"A19, CVE-2021-21409",
		"The handler's last Read fails, and its response is sent. An invalid Content-Length, or two of them, is answered 400",
		"golang.org/x/net/http2 server.go `stream.endStream`",
	}
	FloodsOfFrames = Promise{
		"An HTTP/2 connection is closed when its client exceeds the allowed rate of frames without data, or of resets that it provokes",
		"CVE-2019-9512 to 9518, CVE-2025-8671; D2 and D4",
		"Limits the queue of frames to be sent (10,000) and the number of running handlers. It reads frames without a limit",
		"golang.org/x/net/http2 server.go `maxQueuedControlFrames`",
	}
	FloodsOfHeaders = Promise{
		"The connection of a client that keeps sending headers beyond the limit is closed",
		"D15",
		"Answers each with 431, and keeps the connection",
		"golang.org/x/net/http2 server.go `handleHeaderListTooLong`",
	}
	TwoGoAways = Promise{
		"An HTTP/2 client gets a first GOAWAY as a warning before the GOAWAY that names the last stream",
		"none: requests that are in transit when a server stops (RFC 9113, 6.8)",
		"Sends one GOAWAY with the last stream that it has seen. Requests in transit are reported as unprocessed, and clients send them again on another connection",
		"golang.org/x/net/http2 server.go `serverConn.startGracefulShutdownInternal`",
	}
	HeaderTimeOverHTTP2 = Promise{
		"An HTTP/2 header block must be complete within 10 s",
		"slow headers; D5",
		"Closes the connection after 45 s, because its pings are not answered in that time",
		"net/http has no such setting: ReadHeaderTimeout is for HTTP/1",
	}
	EmptyLineBefore = Promise{
		"An empty line before an HTTP/1.1 request is skipped",
		"none: old clients send one after a body (RFC 9112, 2.2)",
		"Answers 400",
		"net/http request.go `readRequest`",
	}
)

// CookieCrumbs limits the number of fields.
var CookieCrumbs = Promise{
	"Each Cookie field of an HTTP/2 request counts towards the limit of 500 fields",
	"A40, CVE-2026-47774",
	"Counts them as one field. Their size is limited by the header size",
	"golang.org/x/net/http2 server.go `serverConn.newWriterAndRequest`",
}

// ShortOfMemory describes the server's automatic reaction to a shortage of memory.
var ShortOfMemory = Promise{
	"When memory is short, the connections that use most memory are closed, and new streams are refused with REFUSED_STREAM",
	"D18",
	"Requests are answered 503 and idle connections are closed. Connections in use are not closed",
	"net/http does not report the memory of a connection, and refuses streams only because of their number",
}

// Promises returns all promises, in the order of the table.
func Promises() []Promise {
	return []Promise{
		LineEnds, OneLength, PlainChunks, HostOfEveryRequest, LengthOverHTTP2, FloodsOfFrames, FloodsOfHeaders, HeaderTimeOverHTTP2,
		StatusForEveryRefusal, TwoGoAways, EmptyLineBefore, CookieCrumbs, ShortOfMemory,
	}
}
