package jobs

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

// A job id is idPrefix and idDigits hex digits: random ones, then two tags made
// of them with a secret. The first tag says that some supervisor of this tree
// gave the id out, the second that this one did. So an id that is in no table
// can be told apart as made up, as another owner's, or as forgotten, with no
// memory of what was given out and no look at what others own.
const (
	idPrefix = "job_"
	idDigits = randomDigits + 2*tagDigits

	randomDigits = 14
	tagDigits    = 3
)

// validID reports whether id has the form of a job id.
func validID(id string) bool {
	digits, ok := strings.CutPrefix(id, idPrefix)
	return ok && len(digits) == idDigits && strings.Trim(digits, "0123456789abcdef") == ""
}

// newID returns an id of this supervisor. It needs mu.
func (s *Supervisor) newID() string {
	for {
		var b [randomDigits / 2]byte
		rand.Read(b[:]) // never fails
		random := hex.EncodeToString(b[:])
		id := idPrefix + random + s.idTag(random, 0) + s.idTag(random, s.number)
		if _, taken := s.reg.jobs[id]; !taken {
			return id
		}
	}
}

// idTag returns the tag of one supervisor by its number, or that of the tree
// for number 0.
func (s *shared) idTag(random string, number int) string {
	text := make([]byte, 0, 64)
	text = append(text, s.idKey[:]...)
	text = append(text, random...)
	text = append(text, ' ')
	text = strconv.AppendInt(text, int64(number), 10)
	sum := sha256.Sum256(text) // nobody sees more than a few digits of it
	return hex.EncodeToString(sum[:])[:tagDigits]
}

// absent returns the sentinel that says why there is no job with this id. It
// needs mu.
func (s *Supervisor) absent(id string) error {
	if !validID(id) {
		return ErrNotFound
	}
	if err := s.reg.moved[id]; err != nil {
		return err
	}
	random, tags := id[len(idPrefix):][:randomDigits], id[len(idPrefix)+randomDigits:]
	switch {
	case tags[:tagDigits] != s.idTag(random, 0):
		return ErrNotFound
	case tags[tagDigits:] != s.idTag(random, s.number):
		return ErrForeign
	}
	return ErrExpired
}
