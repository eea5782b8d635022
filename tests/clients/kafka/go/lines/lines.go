// Package lines reads what a player is asked for, a line of JSON each, and answers each with one.
package lines

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
)

// Record is a record as all players tell it.
type Record struct {
	Partition int32       `json:"partition"`
	Offset    int64       `json:"offset"`
	Key       *string     `json:"key"`
	Value     *string     `json:"value"`
	Headers   [][2]string `json:"headers"`
}

// Request has the fields of whatever is asked for.
type Request struct {
	Do         string             `json:"do"`
	Topic      string             `json:"topic"`
	Partitions int32              `json:"partitions"`
	Config     map[string]*string `json:"config"`
	Codec      string             `json:"codec"`
	Records    []Record           `json:"records"`
	Count      int                `json:"count"`
	Group      string             `json:"group"`
	Member     string             `json:"member"`
	Offsets    map[int32]int64    `json:"offsets"`
}

// Answer has what was read, and what a member holds.
type Answer struct {
	Records []Record `json:"records"`
	Held    []int32  `json:"held"`
	Error   string   `json:"error,omitempty"`
}

// Player does what it is asked for.
type Player interface {
	Create(asked Request) error
	Produce(asked Request) error
	Read(asked Request) ([]Record, error)
	Join(asked Request) error
	Poll(member string) ([]Record, []int32, error)
	Commit(member string) error
	Leave(member string) error
	Reset(asked Request) error
}

// Login says whose certificates are believed, and who logs in: by a password, or by a token.
type Login struct {
	CA       string `json:"ca"`
	User     string `json:"user"`
	Password string `json:"password"`
	Token    string `json:"token"`
}

// LoginOf the arguments of a player is nil where they have none.
func LoginOf(arguments []string) *Login {
	if len(arguments) < 3 {
		return nil
	}
	var login Login
	if err := json.Unmarshal([]byte(arguments[2]), &login); err != nil {
		panic(err)
	}
	return &login
}

// TLS believes what the authority has signed.
func (l *Login) TLS() *tls.Config {
	pem, err := os.ReadFile(l.CA)
	if err != nil {
		panic(err)
	}
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(pem)
	return &tls.Config{RootCAs: authorities}
}

// Serve answers until the input ends; an error is told by what nameOf says of it.
func Serve(player Player, nameOf func(error) string) {
	in := bufio.NewReader(os.Stdin)
	out := json.NewEncoder(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var asked Request
		if err = json.Unmarshal(line, &asked); err != nil {
			panic(err)
		}
		answer := Answer{Records: []Record{}, Held: []int32{}}
		if err = do(player, asked, &answer); err != nil {
			answer.Error = nameOf(err)
		}
		if err = out.Encode(answer); err != nil {
			panic(err)
		}
	}
}

func do(player Player, asked Request, answer *Answer) (err error) {
	switch asked.Do {
	case "create":
		return player.Create(asked)
	case "produce":
		return player.Produce(asked)
	case "read":
		answer.Records, err = player.Read(asked)
		return err
	case "join":
		return player.Join(asked)
	case "poll":
		answer.Records, answer.Held, err = player.Poll(asked.Member)
		return err
	case "commit":
		return player.Commit(asked.Member)
	case "leave":
		return player.Leave(asked.Member)
	case "reset":
		return player.Reset(asked)
	}
	return fmt.Errorf("nobody knows how to %s", asked.Do)
}

// Bytes are those of a text that may be missing.
func Bytes(text *string) []byte {
	if text == nil {
		return nil
	}
	return []byte(*text)
}

// Text is that of bytes that may be missing.
func Text(bytes []byte) *string {
	if bytes == nil {
		return nil
	}
	text := string(bytes)
	return &text
}
