//! The report as text and as HTML.

use std::fmt::{self, Write as _};

use sluicegate_model::text::one_line;

use super::{AnnotationReport, IngressReport, MigrationReport, Verdict};

/// Every verdict, the best first.
const VERDICTS: [Verdict; 4] = [Verdict::Same, Verdict::Different, Verdict::Refused, Verdict::Closed];

impl MigrationReport {
    /// The share of the Ingresses with the same behavior, in percent.
    #[must_use]
    pub fn percent_same(&self) -> u32 {
        let same = self.totals.get(&Verdict::Same).copied().unwrap_or_default();
        u32::try_from(same * 100 / self.ingresses.len().max(1)).unwrap_or(100)
    }

    fn summary(&self) -> String {
        let counts: Vec<String> = VERDICTS
            .iter()
            .map(|verdict| {
                format!("{} {}", self.totals.get(verdict).copied().unwrap_or_default(), verdict.as_str())
            })
            .collect();
        format!("{} Ingresses: {} ({}% same)", self.ingresses.len(), counts.join(", "), self.percent_same())
    }

    /// The report as one HTML page without other files.
    #[must_use]
    pub fn html(&self) -> String {
        let mut page = String::from(HEAD);
        // Writing to a String does not fail.
        let _ = write!(
            page,
            "<p>{}</p>\n<h2>Annotations</h2>\n<table><tr><th>annotation<th>uses<th>verdict</tr>\n",
            escaped(&self.summary())
        );
        for (name, total) in &self.annotations {
            let verdict = total.verdict.as_str();
            let _ = writeln!(
                page,
                "<tr><td>{}<td>{}<td class={verdict}>{verdict}</tr>",
                escaped(name),
                total.uses
            );
        }
        page.push_str("</table>\n<h2>Ingresses</h2>\n<table><tr><th>Ingress<th>verdict<th>annotation or field<th>value<th>reason</tr>\n");
        for ingress in &self.ingresses {
            ingress.rows(&mut page);
        }
        page.push_str("</table>\n");
        page
    }
}

impl IngressReport {
    fn rows(&self, page: &mut String) {
        let verdict = self.verdict.as_str();
        let _ = writeln!(
            page,
            "<tr class=ingress><td>{}/{}<td class={verdict}>{verdict}<td><td><td></tr>",
            escaped(&self.namespace),
            escaped(&self.name)
        );
        for AnnotationReport { name, value, verdict, reason } in &self.annotations {
            let verdict = verdict.as_str();
            let _ = writeln!(
                page,
                "<tr><td><td class={verdict}>{verdict}<td>{}<td><code>{}</code><td>{}</tr>",
                escaped(name),
                escaped(value),
                escaped(reason.as_deref().unwrap_or_default())
            );
        }
        for fault in &self.faults {
            let _ = writeln!(page, "<tr><td><td class=closed>closed<td colspan=3>{}</tr>", escaped(fault));
        }
    }
}

/// The report as text: a line for each Ingress, a line for each of its parts that is not the same, and the totals.
impl fmt::Display for MigrationReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ingress in &self.ingresses {
            writeln!(f, "Ingress {}/{}: {}", ingress.namespace, ingress.name, ingress.verdict.as_str())?;
            for AnnotationReport { name, verdict, reason, .. } in &ingress.annotations {
                if *verdict != Verdict::Same {
                    let reason = one_line(reason.as_deref().unwrap_or_default());
                    writeln!(f, "  {name}: {}: {reason}", verdict.as_str())?;
                }
            }
            for fault in &ingress.faults {
                writeln!(f, "  {}", one_line(fault))?;
            }
        }
        writeln!(f, "{}", self.summary())?;
        if self.of_other_classes > 0 {
            writeln!(f, "Ingresses of other classes, which are left out: {}", self.of_other_classes)?;
        }
        Ok(())
    }
}

/// A text of a user in HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

const HEAD: &str = "<!doctype html>
<html lang=en>
<meta charset=utf-8>
<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'unsafe-inline'\">
<title>From ingress-nginx to Sluicegate</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; color: #1c2330 }
table { border-collapse: collapse; width: 100% } th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #dde2ea; vertical-align: top }
code { white-space: pre-wrap; word-break: break-word } .ingress { font-weight: 600; background: #f4f6f9 }
.same { color: #1a7f4b } .different { color: #9a6700 } .refused { color: #b3501b } .closed { color: #b3261e }
@media (prefers-color-scheme: dark) { body { background: #12161d; color: #e3e7ee } .ingress { background: #1b212b } th, td { border-color: #2b3340 } .same { color: #5cc98d } .different { color: #e0b050 } .refused, .closed { color: #f0907a } }
</style>
<h1>From ingress-nginx to Sluicegate</h1>
";
