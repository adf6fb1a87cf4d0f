// Package spell tells which of the words that there are was meant by one that is
// none of them.
package spell

import "strings"

// Nearest returns the word that the fewest edits make of a wrong one, or "" if
// none is near. Capital letters count as small ones.
func Nearest(wrong string, words []string) string {
	best, least := "", 2+len(wrong)/4
	for _, word := range words {
		if n := edits(strings.ToLower(wrong), strings.ToLower(word)); n < least && n < len(word)-1 {
			best, least = word, n
		}
	}
	return best
}

// edits counts the characters to insert, remove, replace or swap with their
// neighbour to turn a into b.
func edits(a, b string) int {
	const long = 64
	if len(a) > long {
		return long
	}
	var before []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next := make([]int, len(b)+1)
		next[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next[j+1] = min(row[j]+cost, row[j+1]+1, next[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}
