package httpengine

import (
	"portico.dev/internal/httpengine/engine"
	"portico.dev/internal/httpengine/library"
	"portico.dev/internal/httpengine/portico"
)

// Portico is Portico's own implementation. It is removed by deleting the directory portico, this constant, its line below, and
// the import.
const Portico Name = "portico"

// engines are the implementations, the default first.
var engines = []named{
	{Portico, portico.Engine{}},
	{Library, library.Engine{}},
}

type named struct {
	name Name
	engine.Engine
}
