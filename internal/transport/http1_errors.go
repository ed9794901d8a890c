package transport

// answerError is what is wrong with bytes that came in place of an answer over HTTP/1.1.
type answerError string

func (e answerError) Error() string { return "malformed HTTP/1.1: " + string(e) }

const (
	errStatusLine   = answerError("it does not begin with a status line of HTTP/1.0 or HTTP/1.1")
	errBareLF       = answerError("a line ends without CR")
	errBareCR       = answerError("a CR that ends no line")
	errControl      = answerError("a control byte in a header")
	errFolded       = answerError("a header is folded over two lines")
	errName         = answerError("the name of a header is no token")
	errNoColon      = answerError("a header line without a colon")
	errTwoLengths   = answerError("more than one Content-Length")
	errLength       = answerError("a Content-Length that is no plain number")
	errCoding       = answerError("a Transfer-Encoding that is not chunked alone")
	errOldCoding    = answerError("a Transfer-Encoding in HTTP/1.0")
	errTwoFramings  = answerError("both a Content-Length and a Transfer-Encoding")
	errNoBody       = answerError("a length or a coding of an answer that has no body")
	errSwitched     = answerError("protocols were switched and nobody asked for it")
	errChunkSize    = answerError("a chunk whose size is no plain number")
	errChunkEnd     = answerError("a chunk that does not end where it said")
	errTrailerFrame = answerError("a trailer that says how long the message is")
	errUnasked      = answerError("bytes before any request")
)
