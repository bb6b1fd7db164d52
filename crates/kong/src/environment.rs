//! Variables of the environment in the text of a file: `${{ env "DECK_KEY" }}`.
//!
//! decK fills in the variables before it reads the YAML, so a variable may stand anywhere in the text. Only variables whose
//! name begins with `DECK_` are allowed: a file cannot read the other variables of the process.

use crate::node::ReadError;

/// The prefix of the names of variables.
const PREFIX: &str = "DECK_";

/// A text with the values of its variables.
#[derive(Debug)]
pub(crate) struct Filled {
    pub(crate) text: String,
    /// For each value with line ends: the line of the text from which lines are later than in the file, and the number of
    /// additional lines.
    shifts: Vec<(u32, u32)>,
}

impl Filled {
    /// The line of the file for a line of the text.
    pub(crate) fn line(&self, line: u32) -> u32 {
        let mut written = line;
        for (first, added) in &self.shifts {
            // A line inside a value is the line of the variable.
            written -= (*added).min(line.saturating_sub(*first));
        }
        written
    }
}

/// Fills in the variables. `variable` returns the value of a variable.
pub(crate) fn fill(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Filled, ReadError> {
    let mut filled = Filled { text: String::with_capacity(text.len()), shifts: Vec::new() };
    let mut out_line = 1;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let number = u32::try_from(index).unwrap_or(u32::MAX - 1) + 1;
        let mut rest = line;
        if !rest.trim_start().starts_with('#') {
            while let Some((before, after)) = rest.split_once("${{") {
                let fault = |message: String| ReadError::new(number, message);
                let (expression, after) = after.split_once("}}").ok_or_else(|| {
                    fault("\"${{\" has no \"}}\" on its line: close the expression".to_owned())
                })?;
                let value = evaluate(expression, variable).map_err(fault)?;
                filled.text.push_str(before);
                filled.text.push_str(&value);
                let added = u32::try_from(value.matches('\n').count()).unwrap_or(u32::MAX);
                if added > 0 {
                    filled.shifts.push((out_line, added));
                    out_line += added;
                }
                rest = after;
            }
        }
        filled.text.push_str(rest);
        out_line += 1;
    }
    Ok(filled)
}

/// The value of an expression: `env "NAME"`, with optional functions behind `|`.
fn evaluate(expression: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut stages = expression.split('|').map(str::trim);
    let first = stages.next().unwrap_or_default();
    let name = first.strip_prefix("env").map(str::trim).and_then(quoted).ok_or_else(|| {
        format!("\"${{{{ {first} }}}}\" is not supported: write ${{{{ env \"{PREFIX}NAME\" }}}}")
    })?;
    if !name.starts_with(PREFIX) {
        return Err(format!("the variable {name:?} does not begin with {PREFIX}: rename the variable"));
    }
    let mut value = variable(name).ok_or_else(|| {
        format!("the environment has no variable {name:?}: set the variable, or write the value")
    })?;
    for stage in stages {
        // A message never repeats the value, which may be a secret.
        let mismatch =
            |what: &str| format!("the value of the variable {name:?} is no {what}: correct the value");
        match stage.split_once(char::is_whitespace).unwrap_or((stage, "")) {
            ("toBool", "") => match &*value {
                "1" | "t" | "T" | "TRUE" | "true" | "True" => value = "true".to_owned(),
                "0" | "f" | "F" | "FALSE" | "false" | "False" => value = "false".to_owned(),
                _ => return Err(mismatch("boolean")),
            },
            ("toInt", "") => drop(value.parse::<i64>().map_err(|_| mismatch("integer"))?),
            ("toFloat", "") => drop(value.parse::<f64>().map_err(|_| mismatch("number"))?),
            ("indent", spaces) => {
                let spaces =
                    spaces.trim().parse::<u8>().map_err(|_| format!("{stage:?} has no number of spaces"))?;
                value = value.replace('\n', &format!("\n{}", " ".repeat(spaces.into())));
            }
            _ => {
                return Err(format!(
                    "the function {stage:?} is unknown: use toBool, toInt, toFloat or indent"
                ));
            }
        }
    }
    Ok(value)
}

/// The text inside quotes.
fn quoted(text: &str) -> Option<&str> {
    ['"', '`'].iter().find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_test(name: &str) -> Option<String> {
        match name {
            "DECK_KEY" => Some("secret".to_owned()),
            "DECK_PORT" => Some("8080".to_owned()),
            "DECK_PEM" => Some("a\nb\nc".to_owned()),
            "HOME" => Some("/root".to_owned()),
            _ => None,
        }
    }

    #[test]
    fn variables_are_filled_in_before_the_yaml_is_read() {
        for (text, expected) in [
            ("key: ${{ env \"DECK_KEY\" }}x", "key: secretx"),
            ("key: \"${{env \"DECK_KEY\"}}\"", "key: \"secret\""),
            ("port: ${{ env `DECK_PORT` | toInt }}", "port: 8080"),
            ("cert: |\n  ${{ env \"DECK_PEM\" | indent 2 }}\n", "cert: |\n  a\n  b\n  c\n"),
            ("# ${{ env \"DECK_NONE\" }}\na: $x", "# ${{ env \"DECK_NONE\" }}\na: $x"),
        ] {
            assert_eq!(fill(text, &of_test).unwrap().text, expected);
        }
    }

    #[test]
    fn unusable_variable_is_an_error_with_its_line_and_without_its_value() {
        for (text, message) in [
            ("a: 1\nb: ${{ env \"DECK_NONE\" }}", "line 2: the environment has no variable \"DECK_NONE\""),
            ("a: ${{ env \"HOME\" }}", "line 1: the variable \"HOME\" does not begin with DECK_"),
            ("a: ${{ env \"DECK_KEY\" | toInt }}", "the value of the variable \"DECK_KEY\" is no integer"),
            ("a: ${{ env \"DECK_KEY\" | upper }}", "the function \"upper\" is unknown"),
            ("a: ${{ env \"DECK_KEY\"", "has no \"}}\""),
            ("a: ${{ file \"x\" }}", "is not supported"),
        ] {
            let fault = fill(text, &of_test).unwrap_err().to_string();
            assert!(fault.contains(message), "{text}: {fault}");
            assert!(!fault.contains("secret"), "{fault}");
        }
    }

    #[test]
    fn lines_behind_a_value_of_several_lines_are_those_of_the_file() {
        let filled = fill("a: |\n  ${{ env \"DECK_PEM\" | indent 2 }}\nb: 1\n", &of_test).unwrap();
        // The text has a: on 1, the value on 2 to 4, and b: on 5.
        let lines: Vec<u32> = (1..=5).map(|line| filled.line(line)).collect();
        assert_eq!(lines, [1, 2, 2, 2, 3]);
    }
}
