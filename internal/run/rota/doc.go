// Package rota gives many things their turns with one timer between them, so that a thousand that wait cost a thousand
// entries of a heap and not a thousand goroutines.
package rota
