//! The parameters of a query.

use super::*;

/// The default window.
const SINCE: i64 = 3600;
/// The longest window, in seconds: ten years.
const WINDOW_MAX: i64 = 3660 * 86_400;

impl Query {
    /// Parses the query of a URL.
    pub(crate) fn parse(text: &str, now: i64) -> Result<Self, QueryError> {
        let (mut from, mut to, mut since, mut step, mut limit, mut format) =
            (None, None, None, None, None, None);
        let (mut by, mut conditions) = (Vec::new(), Vec::new());
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decode(name)?, decode(value)?);
            let once = |known: bool| match known {
                true => Err(wrong(&name, &value, "a parameter that is given twice", "give it once")),
                false => Ok(()),
            };
            match &*name {
                "from" => {
                    once(from.is_some())?;
                    from = Some(time("from", &value)?);
                }
                "to" => {
                    once(to.is_some())?;
                    to = Some(time("to", &value)?);
                }
                "since" => {
                    once(since.is_some())?;
                    let duration = parse_duration(&value).ok().map(|duration| duration.as_secs());
                    let seconds = duration.and_then(|seconds| i64::try_from(seconds).ok());
                    since = Some(seconds.filter(|seconds| (60..=WINDOW_MAX).contains(seconds)).ok_or_else(
                        || wrong("since", &value, "no duration of at least 60s", "write 15m, 1h or 7d"),
                    )?);
                }
                "step" => {
                    once(step.is_some())?;
                    let seconds = value.parse().ok().filter(|step| *step > 0 && step % 60 == 0);
                    step = Some(seconds.filter(|step| *step <= WINDOW_MAX).ok_or_else(|| {
                        wrong("step", &value, "no multiple of 60 seconds", "write 60, 300, 3600 or 86400")
                    })?);
                }
                "limit" => {
                    once(limit.is_some())?;
                    let groups = value.parse().ok().filter(|groups| (1..=GROUPS).contains(groups));
                    limit = Some(groups.ok_or_else(|| {
                        wrong("limit", &value, "no number of groups", "write a number from 1 to 1000")
                    })?);
                }
                "format" => {
                    once(format.is_some())?;
                    format = Some(match &*value {
                        "json" => Format::Json,
                        "csv" => Format::Csv,
                        _ => return Err(wrong("format", &value, "no format", "write json or csv")),
                    });
                }
                "by" => {
                    for name in value.split(',').filter(|name| !name.is_empty()) {
                        let dimension = dimension("by", name)?;
                        if !by.contains(&dimension) {
                            by.push(dimension);
                        }
                    }
                }
                "where" => conditions.push(condition(&value)?),
                _ => {
                    return Err(wrong(
                        &name,
                        &value,
                        "no parameter of analytics",
                        "the parameters are from, to, since, step, by, where, limit and format",
                    ));
                }
            }
        }
        if from.is_some() && since.is_some() {
            return Err(QueryError::Parameter(
                "from and since both set the start of the window; remove one of them".to_owned(),
            ));
        }
        // A time beyond the range of a window cannot overflow below.
        let to = to.unwrap_or(now).clamp(0, now + WINDOW_MAX);
        let from = from.unwrap_or_else(|| to - since.unwrap_or(SINCE)).max(0);
        if from >= to || to - from > WINDOW_MAX {
            return Err(QueryError::Parameter(
                "from must be before to, and the window at most ten years".to_owned(),
            ));
        }
        let limit = limit.unwrap_or(100);
        if let Some(step) = step {
            let points = (to - from).div_euclid(step) + 1;
            if points > POINTS {
                return Err(QueryError::Parameter(format!(
                    "step={step} divides the window in {points} points; at most {POINTS} points are allowed, so use a step of at \
                     least {} seconds",
                    ((to - from) / POINTS / 60 + 1) * 60
                )));
            }
            let groups = if by.is_empty() { 1 } else { limit };
            if usize::try_from(points).unwrap_or(usize::MAX) * groups > ALL_POINTS {
                return Err(QueryError::Parameter(format!(
                    "{points} points of {groups} groups exceed {ALL_POINTS} points; use a larger step or a smaller limit"
                )));
            }
        }
        Ok(Self { from, to, step, by, conditions, limit, format: format.unwrap_or(Format::Json) })
    }
}

pub(crate) fn wrong(name: &str, value: &str, why: &str, instead: &str) -> QueryError {
    let short = |text: &str| text.chars().take(100).collect::<String>().escape_debug().to_string();
    QueryError::Parameter(format!("{}={}: {why}; {instead}", short(name), short(value)))
}

pub(crate) fn time(name: &str, value: &str) -> Result<i64, QueryError> {
    let as_rfc3339 = || {
        let time = parse_rfc3339(value).ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
        i64::try_from(time.as_secs()).ok()
    };
    let seconds = value.parse().ok().filter(|seconds| *seconds >= 0);
    seconds
        .or_else(as_rfc3339)
        .ok_or_else(|| wrong(name, value, "no time", "write 2026-11-26T10:00:00Z, or the seconds since 1970"))
}

fn dimension(parameter: &str, name: &str) -> Result<Dimension, QueryError> {
    Dimension::ALL.into_iter().find(|dimension| dimension.name() == name).ok_or_else(|| {
        wrong(
            parameter,
            name,
            "no dimension",
            "the dimensions are api, version, environment, operation, consumer, plan, route, status and endpoint",
        )
    })
}

fn condition(text: &str) -> Result<Condition, QueryError> {
    let Some((name, value)) = text.split_once(':') else {
        return Err(wrong(
            "where",
            text,
            "no condition",
            "write DIMENSION:VALUE, such as where=api:shop/orders",
        ));
    };
    let dimension = dimension("where", name)?;
    if dimension != Dimension::Status {
        return Ok(Condition::Name(dimension, value.to_owned()));
    }
    let class = value.strip_suffix("xx").and_then(|class| class.parse::<u16>().ok());
    match (class.filter(|class| (1..=5).contains(class)), value.parse::<u16>()) {
        (Some(class), _) => Ok(Condition::Status(class * 100, class * 100 + 99)),
        (_, Ok(status)) if status <= 999 => Ok(Condition::Status(status, status)),
        _ => Err(wrong("where", text, "no status", "write where=status:404 or where=status:5xx")),
    }
}

/// Decodes a part of a query (`application/x-www-form-urlencoded`).
pub(crate) fn decode(text: &str) -> Result<String, QueryError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit =
                    || char::from(rest.next()?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
                let value = digit().zip(digit()).map(|(high, low)| high << 4 | low);
                value.ok_or_else(|| wrong("query", text, "a percent sign without two digits", "write %25"))?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| wrong("query", text, "no UTF-8", "encode the text as UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_000_000_000;

    #[test]
    fn parameters_are_those_of_the_url() {
        let query = Query::parse(
            "from=2001-09-09T00%3A00%3A00Z&to=999999999&step=300&by=api,status&by=api&where=api:shop/orders&where=status:5xx\
             &where=route:Api+a/b+%2Fx:y&limit=7&format=csv",
            NOW,
        );
        let expected = Query {
            from: 999_993_600,
            to: 999_999_999,
            step: Some(300),
            by: vec![Dimension::Api, Dimension::Status],
            conditions: vec![
                Condition::Name(Dimension::Api, "shop/orders".into()),
                Condition::Status(500, 599),
                Condition::Name(Dimension::Route, "Api a/b /x:y".into()),
            ],
            limit: 7,
            format: Format::Csv,
        };
        assert_eq!(query.expect("valid"), expected);
        let default = Query::parse("", NOW).expect("valid");
        assert_eq!((default.from, default.to, default.limit), (NOW - 3600, NOW, 100));
        assert_eq!(Query::parse("since=2d", NOW).expect("valid").from, NOW - 2 * 86_400);
    }

    #[test]
    fn wrong_parameters_are_rejected_with_the_allowed_values() {
        for (query, part) in [
            ("by=apis", "by=apis: no dimension; the dimensions are api, version"),
            ("where=api", "write DIMENSION:VALUE"),
            ("where=status:6xx", "status:404"),
            ("where=status:x", "status:404"),
            ("step=61", "multiple of 60"),
            ("step=60&since=2d", "use a step of at least 180 seconds"),
            ("step=60&since=12h&limit=1000&by=api", "a larger step or a smaller limit"),
            ("limit=0", "from 1 to 1000"),
            ("limit=5&limit=6", "given twice"),
            ("since=1", "no duration"),
            ("since=1h&from=1", "remove one"),
            ("from=7&to=7", "from must be before to"),
            ("from=x", "seconds since 1970"),
            ("from=-9223372036854775808", "seconds since 1970"),
            ("from=0&to=9223372036854775807", "ten years"),
            ("format=xml", "json or csv"),
            ("x%0a=1", "no parameter of analytics"),
            ("by=%", "percent sign"),
            ("by=%ff", "UTF-8"),
        ] {
            let error = Query::parse(query, NOW).expect_err(query).to_string();
            assert!(error.contains(part) && !error.contains('\n'), "{query}: {error}");
        }
    }
}
